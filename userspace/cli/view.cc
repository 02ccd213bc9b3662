// SPDX-License-Identifier: Apache-2.0
//
// heaptap view: writes a profile as a page for a browser, and says how to open it.
#include <stdio.h>

#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/show/report_subject.h"
#include "userspace/cli/subjects/local_names.h"
#include "userspace/cli/subjects/profile_source.h"
#include "userspace/cli/subjects/remote_profile.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/cli/words/whole_file.h"
#include "userspace/http/url.h"
#include "userspace/profile/difference.h"
#include "userspace/profile/frame_names.h"
#include "userspace/report/named_profile.h"
#include "userspace/views/page_data.h"
#include "userspace/web/assets.h"

namespace heaptap::cli {
namespace {

struct ViewFlags {
  std::string socket = DefaultSocket();
  NamePlaces places;
  std::string subject;
  std::string base;
  std::string output;
  bool no_source_paths = false;
};

// A file in the current folder, named after the dump or the process.
std::string DefaultOutput(const std::string& subject) {
  std::string name(http::IsUrl(subject) ? FileNameOfUrl(subject) : profile::FileName(subject));
  for (char& letter : name) {
    if (!absl::ascii_isgraph(letter)) letter = '_';
  }
  return absl::StrCat(name, ".html");
}

int WritePage(const ViewFlags& flags) {
  if (const absl::Status status = CheckPlaces(flags.places); !status.ok()) return Report(status);
  const absl::StatusOr<Seen> seen =
      LookAtShares(flags.socket, flags.subject, flags.base, flags.places, profile::Unchanged::kKeep);
  if (!seen.ok()) return Report(seen.status());
  const LocalNames names(seen->profile, flags.places, seen->symbols);
  SayMissing(names);
  const report::NamedProfile named(seen->profile, names.Find(), seen->measures, report::Roots::kNone,
                                   report::CutPaths::kMarked);
  const std::string page = web::SinglePage(
      seen->subject.name, report::PageData(named, named.paths(), seen->subject,
                                           {.pid = seen->pid,
                                            .shares = seen->subject.is_difference ? nullptr : &seen->profile,
                                            .source_paths = !flags.no_source_paths}));
  const std::string output = flags.output.empty() ? DefaultOutput(flags.subject) : flags.output;
  if (const absl::Status status = WriteWholeFile(output, page, Readers::kUsual); !status.ok() || output == "-")
    return Report(status);
  const std::string shown = base::Printable(output);
  printf("%s: open it in a browser, here with\n  xdg-open %s\nor copy it: it is one file that needs nothing else\n",
         shown.c_str(), shown.c_str());
  return kSuccess;
}

}  // namespace

void AddView(CommandLine& line) {
  Command command = line.AddCommand("view", "write a profile as a page for a browser: one file with all views");
  auto flags = std::make_shared<ViewFlags>();
  AddSubjectOptions(command, flags->subject, flags->base);
  command
      .Add("-o,--output", flags->output, "write to FILE (default: the name of the subject with .html, in this folder)")
      .Type("FILE");
  command.AddFlag("--no-source-paths", flags->no_source_paths,
                  "leave out the folders of source files and libraries, which may be confidential");
  AddPlacesOptions(command, flags->places);
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return WritePage(*flags); });
}

}  // namespace heaptap::cli
