// SPDX-License-Identifier: Apache-2.0
#include "userspace/web/assets.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

// The Makefile passes the folder of the bundles (HEAPTAP_WEB_FOLDER).
#define EMBED(name, file)                                                                                      \
  asm(".pushsection .rodata\n"                                                                                 \
      ".global " #name "_begin\n" #name "_begin:\n.incbin \"" HEAPTAP_WEB_FOLDER "/" file "\"\n.global " #name \
      "_end\n" #name "_end:\n.popsection\n");                                                                  \
  extern "C" const char name##_begin[];                                                                        \
  extern "C" const char name##_end[]

EMBED(heaptap_web_script, "page.js");
EMBED(heaptap_web_style, "page.css");
EMBED(heaptap_web_script_hash, "page.js.sha256");
EMBED(heaptap_web_style_hash, "page.css.sha256");

namespace heaptap::web {
namespace {

constexpr absl::string_view kHead =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";

// "</script>" and "<!--" are the only texts that end or change a script element, and JSON has "<" in strings only.
std::string InScript(absl::string_view json) { return absl::StrReplaceAll(json, {{"<", "\\u003c"}}); }

std::string Html(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

absl::string_view Embedded(const char* begin, const char* end) { return {begin, static_cast<size_t>(end - begin)}; }

// Only the page's own script and style, whatever the profile's names are. The hashes are of the exact texts of the
// elements, so SinglePage() adds no space around them.
std::string Policy() {
  return absl::StrCat("default-src 'none'; script-src 'sha256-",
                      Embedded(heaptap_web_script_hash_begin, heaptap_web_script_hash_end), "'; style-src 'sha256-",
                      Embedded(heaptap_web_style_hash_begin, heaptap_web_style_hash_end),
                      "'; base-uri 'none'; form-action 'none'");
}

}  // namespace

absl::string_view Script() { return Embedded(heaptap_web_script_begin, heaptap_web_script_end); }

absl::string_view Style() { return Embedded(heaptap_web_style_begin, heaptap_web_style_end); }

std::string ServedPage() {
  return absl::StrCat(
      kHead, "<title>heaptap</title>\n<link rel=\"stylesheet\" href=\"/page.css\">\n</head>\n<body>\n",
      "<noscript>This page needs JavaScript; <a href=\"/processes.json\">/processes.json</a> does "
      "not.</noscript>\n<div id=\"app\"></div>\n<script src=\"/page.js\"></script>\n</body>\n</html>\n");
}

std::string SinglePage(absl::string_view title, absl::string_view profile_json) {
  return absl::StrCat(kHead, "<meta http-equiv=\"Content-Security-Policy\" content=\"", Policy(), "\">\n<title>",
                      Html(title), " - heaptap</title>\n<style>", Style(),
                      "</style>\n</head>\n<body>\n<div id=\"app\"></div>\n",
                      "<script type=\"application/json\" id=\"profile\">", InScript(profile_json),
                      "</script>\n<script>", Script(), "</script>\n</body>\n</html>\n");
}

}  // namespace heaptap::web
