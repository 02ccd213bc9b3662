// SPDX-License-Identifier: Apache-2.0
//
// The views of one small profile: who allocates, through whom, and what filters leave of it.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/base/printable_text.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/rows.h"
#include "userspace/report/selection.h"
#include "userspace/report/summary_text.h"
#include "userspace/views/dot.h"
#include "userspace/views/flame_svg.h"
#include "userspace/views/jeprof_text.h"
#include "userspace/views/markdown.h"
#include "userspace/views/peek_text.h"
#include "userspace/views/report_json.h"
#include "userspace/views/speedscope.h"
#include "userspace/views/top_text.h"
#include "userspace/views/tree_text.h"

namespace heaptap::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kPeriod = 1024;

// `samples` samples of `size` bytes.
profile::Estimate Estimate(uint64_t samples, uint64_t size) {
  const double p = -std::expm1(-static_cast<double>(size) / kPeriod);
  const auto count = static_cast<double>(samples);
  const double weight = static_cast<double>(size) / p;
  return {.samples = samples,
          .sampled_bytes = samples * size,
          .objects = count / p,
          .bytes = count * weight,
          .variance = count * weight * (weight - static_cast<double>(size))};
}

// Return addresses. 0x20 returns into `parse`, which is inlined in `load`.
constexpr uint64_t kMain = 0x11;
constexpr uint64_t kLoad = 0x21;
constexpr uint64_t kCache = 0x31;
constexpr uint64_t kNew = 0x41;
constexpr uint64_t kVector = 0x51;
constexpr uint64_t kUnknown = 0x1061;

std::vector<profile::SourceFrame> Find(uint64_t address) {
  static const auto* const frames = new std::map<uint64_t, std::vector<profile::SourceFrame>>{
      {0x10, {{.function = "main", .file = "/src/main.cc", .line = 10}}},
      {0x20,
       {{.function = "parse(char const*)", .file = "/src/parse.h", .line = 5},
        {.function = "load(std::vector<int> const&)", .file = "/src/load.cc", .line = 20}}},
      {0x30, {{.function = "Cache<int>::fill(int)", .file = "/src/cache.cc", .line = 30}}},
      {0x40, {{.function = "operator new(unsigned long)"}}},
      {0x50, {{.function = "std::vector<int, std::allocator<int> >::push_back(int&&)"}}}};
  const auto found = frames->find(address);
  return found == frames->end() ? std::vector<profile::SourceFrame>() : found->second;
}

profile::Profile MakeProfile() {
  profile::Profile profile = {.pid = 1, .period = static_cast<uint64_t>(kPeriod)};
  const auto add = [&](std::vector<uint64_t> frames, uint64_t live, uint64_t allocated) {
    profile.contexts.push_back(
        {.frames = std::move(frames),
         .threads = {{.tid = 1, .live = Estimate(live, 1024), .allocated = Estimate(allocated, 1024)}}});
  };
  add({kNew, kLoad, kMain}, 60, 60);
  add({kNew, kVector, kCache, kMain}, 30, 300);
  add({kUnknown, kMain}, 10, 10);
  add({}, 1, 1);
  profile.mappings = {{.start = 0x1000, .end = 0x2000, .file_offset = 0x500, .inode = 1, .path = "/usr/lib/libx.so"}};
  return profile;
}

class ViewsTest : public ::testing::Test {
 protected:
  std::vector<Path> Folded(Filters filters = {}) {
    filters.fold = true;
    absl::StatusOr<std::vector<Path>> paths = Select(named_, filters);
    EXPECT_TRUE(paths.ok()) << paths.status();
    return *std::move(paths);
  }
  std::vector<std::string> Names(const std::vector<Path>& paths, size_t path, const Show& show = {}) {
    std::vector<std::string> names;
    for (const FrameId frame : paths[path].frames) names.push_back(NameOf(named_, named_.frame(frame), show));
    return names;
  }

  const profile::Profile profile_ = MakeProfile();
  const NamedProfile named_{profile_, Find};
};

TEST_F(ViewsTest, FramesHaveNames) {
  const std::vector<Path> paths(named_.paths().begin(), named_.paths().end());
  EXPECT_THAT(Names(paths, 0), ElementsAre("operator new", "parse", "load", "main"));
  EXPECT_TRUE(named_.frame(paths[0].frames[1]).is_inline);
  EXPECT_FALSE(named_.frame(paths[0].frames[2]).is_inline);
  EXPECT_THAT(Names(paths, 2), ElementsAre("libx.so+0x560", "main"));
  EXPECT_THAT(Names(paths, 0, {.by = By::kLine}),
              ElementsAre("operator new", "parse parse.h:5", "load load.cc:20", "main main.cc:10"));
  EXPECT_THAT(Names(paths, 2, {.by = By::kLibrary}), ElementsAre("libx.so", "[no file]"));
  EXPECT_EQ(named_.total().live.samples, 101u);
}

TEST_F(ViewsTest, PlumbingIsFolded) {
  EXPECT_THAT(Names(Folded(), 0), ElementsAre("parse", "load", "main"));
  EXPECT_THAT(Names(Folded(), 1), ElementsAre("Cache<...>::fill", "main"));
}

TEST_F(ViewsTest, FiltersChoosePathsAndFrames) {
  EXPECT_EQ(Folded({.focus = "^parse"}).size(), 1u);
  EXPECT_EQ(Folded({.focus = "cache.cc:3"}).size(), 1u);
  EXPECT_EQ(Folded({.focus = "libx"}).size(), 1u);
  EXPECT_EQ(Folded({.ignore = "main"}).size(), 1u) << "only the unknown path is left";
  EXPECT_THAT(Names(Folded({.hide = "parse|main"}), 0), ElementsAre("load"));
  EXPECT_THAT(Names(Folded({.show = "main"}), 0), ElementsAre("main"));
  const absl::Status wrong = Select(named_, {.focus = "("}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(wrong));
  EXPECT_THAT(wrong.message(), HasSubstr("--focus (: "));
}

TEST_F(ViewsTest, RowsCountEachPathOnce) {
  const std::vector<Row> rows = Rows(named_, Folded(), {}, false);
  EXPECT_EQ(rows[0].name, "parse");
  EXPECT_EQ(rows[0].self.samples, 60u);
  EXPECT_EQ(rows[1].name, "Cache<...>::fill");
  const std::vector<Row> by_total = Rows(named_, Folded(), {}, true);
  EXPECT_EQ(by_total[0].name, "main");
  EXPECT_EQ(by_total[0].total.samples, 100u);
  EXPECT_EQ(by_total[0].self.samples, 0u);
  EXPECT_EQ(Rows(named_, Folded(), {.value = Value::kAllocated}, false)[0].name, "Cache<...>::fill");
}

TEST_F(ViewsTest, FreedIsAllocatedWithoutLive) {
  const double weight = 1024 / -std::expm1(-1.0);
  const std::vector<Row> rows = Rows(named_, Folded(), {.value = Value::kFreed}, false);
  EXPECT_EQ(rows[0].name, "Cache<...>::fill");
  EXPECT_EQ(rows[0].self.samples, 270u);
  EXPECT_NEAR(rows[0].self.bytes, 270 * weight, 1e-6);
  EXPECT_NEAR(rows[0].self.objects, 270 / -std::expm1(-1.0), 1e-6);
  EXPECT_NEAR(rows[0].self.Error(), std::sqrt(270 * weight * (weight - 1024)), 1e-6);
  EXPECT_EQ(named_.total().freed.samples, 270u);
  // A dump without counts of allocations.
  EXPECT_EQ(FreedOf({}, {.bytes = 100, .objects = 1, .samples = 1, .variance = 5}), Measure{});
  // Of a difference: 30 bytes were there, 100 came, 50 are there.
  EXPECT_EQ(FreedOf({.bytes = 100, .objects = 10, .samples = 10}, {.bytes = 50, .objects = 5, .samples = 5},
                    {.bytes = 30, .objects = 3, .samples = 3}),
            (Measure{.bytes = 80, .objects = 8, .samples = 8}));
  EXPECT_THAT(SummaryText(named_, Folded(), {.name = "x"}, {.value = Value::kFreed}, {}),
              HasSubstr("whose memory was freed most:\n   1. 427.1K +- "));
  EXPECT_THAT(Markdown(named_, Folded(), {.name = "x"}, {.value = Value::kFreed}, {}), HasSubstr("| freed | share |"));
}

TEST(Threads, AreTheOutermostFrames) {
  profile::Profile profile = {
      .contexts = {{.frames = {kLoad, kMain},
                    .threads = {{.tid = 7, .live = {1, 100, 1, 100}}, {.tid = 9, .live = {2, 20, 2, 20}}}},
                   {.frames = {}, .threads = {{.tid = 9, .live = {1, 1, 1, 1}}}}},
      .thread_names = {{7, "wor\nker"}, {9, ""}}};
  const NamedProfile named(profile, Find, {}, Roots::kThreads);
  const Show show = {.by = By::kThread};
  ASSERT_EQ(named.paths().size(), 3u);
  EXPECT_EQ(TreeText(MakeTree(named, named.paths(), show, Direction::kInwards), named.total(), show, {}),
            "      100   82.6%  thread 7 wor\\012ker\n"
            "      100   82.6%  main\n"
            "      100   82.6%  load\n"
            "      100   82.6%  parse\n"
            "       21   17.4%  thread 9\n"
            "       20   16.5%    main\n"
            "       20   16.5%    load\n"
            "       20   16.5%    parse\n"
            "        1    0.8%    [unknown call path]\n");
  const std::vector<Row> rows = Rows(named, RootsOf(named.paths()), show, false);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].name, "thread 9");
  EXPECT_EQ(rows[1].self.bytes, 21);
  EXPECT_EQ(rows[1].self.samples, 3u);
  EXPECT_THAT(TopText(named, RootsOf(named.paths()), show, {}), HasSubstr("THREAD\n"));
}

// The variance of a sum of samples of one size: n * w * (w - s).
TEST_F(ViewsTest, TheErrorIsThatOfSampling) {
  const double weight = 1024 / -std::expm1(-1.0);
  EXPECT_NEAR(named_.paths()[0].measures.live.Error(), std::sqrt(60 * weight * (weight - 1024)), 1e-6);
  EXPECT_EQ(ToMeasure({.samples = 3, .sampled_bytes = 300, .objects = 3, .bytes = 300}).Error(), 0);
  EXPECT_TRUE(
      IsNoise(ToMeasure({.samples = 1, .sampled_bytes = 8, .objects = 100, .bytes = 800, .variance = 800 * 792})));
  EXPECT_FALSE(IsNoise(named_.total().live));
}

TEST_F(ViewsTest, Top) {
  const std::string text = TopText(named_, Folded(), {}, {.top = 2});
  EXPECT_THAT(text, HasSubstr("FUNCTION\n"));
  EXPECT_THAT(text, HasSubstr("59.4%"));
  EXPECT_THAT(text, HasSubstr("  parse\n"));
  EXPECT_THAT(text, HasSubstr("and 4 more (see --limit)\n"));
}

TEST_F(ViewsTest, Tree) {
  const std::string text =
      TreeText(MakeTree(named_, Folded(), {}, Direction::kInwards), named_.total(), {}, {.smallest = 5});
  EXPECT_EQ(text,
            "   158.2K   99.0%  main\n"
            "    94.9K   59.4%    load\n"
            "    94.9K   59.4%    parse\n"
            "    47.5K   29.7%    Cache<...>::fill\n"
            "    15.8K    9.9%    libx.so+0x560\n"
            "1 branches below 5.0% are not shown (see --smallest)\n");
}

TEST_F(ViewsTest, Callers) {
  const std::vector<Path> to = PathsTo(named_, Folded(), {}, "load");
  ASSERT_EQ(to.size(), 1u);
  EXPECT_THAT(TreeText(MakeTree(named_, to, {}, Direction::kOutwards), named_.total(), {}, {}),
              HasSubstr("load\n    94.9K   59.4%  main\n"));
  EXPECT_TRUE(PathsTo(named_, Folded(), {}, "none").empty());
}

TEST_F(ViewsTest, PeekShowsCallersAndCallees) {
  const std::string line = std::string(78, '-') + "\n";
  EXPECT_EQ(*PeekText(named_, Folded(), {}, {}, "^(load|main)$"),
            "     SELF   SHARE     TOTAL   SHARE     CALLS   SHARE  CALLERS, FUNCTION, CALLEES\n" + line +
                "        0    0.0%    158.2K   99.0%                    main\n"
                "                                        94.9K   60.0%    load\n"
                "                                        47.5K   30.0%    Cache<...>::fill\n"
                "                                        15.8K   10.0%    libx.so+0x560\n" +
                line +
                "                                        94.9K  100.0%    main\n"
                "        0    0.0%     94.9K   59.4%                    load\n"
                "                                        94.9K  100.0%    parse\n");
  const std::string cut = *PeekText(named_, Folded(), {}, {.top = 1, .smallest = 20}, ".");
  EXPECT_THAT(cut, HasSubstr("1 callees below 20.0% are not shown (see --smallest)\n"));
  EXPECT_THAT(cut, HasSubstr("and 4 more (see --limit)\n"));
  EXPECT_TRUE(absl::IsNotFound(PeekText(named_, Folded(), {}, {}, "none").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PeekText(named_, Folded(), {}, {}, "(").status()));
}

// A call counts once in a path.
TEST(Peek, OfRecursion) {
  const profile::Profile profile = {
      .contexts = {{.frames = {kLoad, kMain, kLoad, kMain, kMain}, .threads = {{.live = {1, 100, 1, 100}}}}}};
  const NamedProfile named(profile, Find);
  const std::vector<Path> paths(named.paths().begin(), named.paths().end());
  const std::string text = *PeekText(named, paths, {}, {}, "^main$");
  EXPECT_THAT(text, HasSubstr("        0    0.0%       100  100.0%                    main\n"));
  EXPECT_THAT(text, HasSubstr("                                         100  100.0%    main\n"));
  EXPECT_THAT(text, HasSubstr("                                         100  100.0%    parse\n"));
  EXPECT_THAT(text, Not(HasSubstr("200")));
}

TEST_F(ViewsTest, Summary) {
  const std::string text = SummaryText(
      named_, Folded(), {.name = "x.heap", .period = 1024, .warnings = {"2 samples"}, .next_commands = {"y"}}, {},
      {.top = 2});
  EXPECT_THAT(text, HasSubstr("x.heap\n  live       159.8K +- "));
  EXPECT_THAT(text, HasSubstr("101 samples (a sample every 1.0K bytes)"));
  EXPECT_THAT(text, HasSubstr("who holds most, 2 of 4 call paths:\n   1. 94.9K +- "));
  EXPECT_THAT(text, HasSubstr("        parse parse.h:5 (inlined)\n        load load.cc:20\n        main main.cc:10\n"));
  EXPECT_THAT(text, HasSubstr("missing: 2 samples\n"));
  EXPECT_THAT(text, HasSubstr("next:\n  y\n"));
}

// The last interval alone would say how large samples are that were taken at another one.
TEST_F(ViewsTest, SamplesOfSeveralIntervals) {
  Subject subject = {.name = "x", .period = 1024, .several_periods = true};
  const std::string words = "101 samples (several intervals, at last a sample every 1.0K bytes)";
  EXPECT_THAT(SummaryText(named_, Folded(), subject, {}, {}), HasSubstr(words));
  EXPECT_THAT(Markdown(named_, Folded(), subject, {}, {}),
              HasSubstr("(101 samples, several intervals, at last a sample every 1.0K bytes)"));
  subject.period = 1;
  EXPECT_THAT(SummaryText(named_, Folded(), subject, {}, {}),
              HasSubstr("(several intervals, at last every allocation is recorded)"));
}

// What else is resident is worth a word where it is most of it.
TEST_F(ViewsTest, SummaryOfALargerProcess) {
  Subject subject = {.name = "x",
                     .resident_bytes = 1 << 20,
                     .coverage = {{"live", 160 << 10, "what"},
                                  {"cached", 1 << 10, "little"},
                                  {"fragmentation", 863 << 10, "free blocks in pages"}}};
  const std::string reason = "of that\n             fragmentation 863.0K, 84.3%: free blocks in pages\n";
  const std::string text = SummaryText(named_, Folded(), subject, {}, {});
  EXPECT_THAT(text, HasSubstr(reason));
  EXPECT_THAT(text, Not(HasSubstr("little")));
  subject.resident_bytes = 200 << 10;
  EXPECT_THAT(SummaryText(named_, Folded(), subject, {}, {}), Not(HasSubstr("fragmentation")));
}

// What was allocated before is unknown: a share of the resident memory would say that it is not there.
TEST_F(ViewsTest, SummaryOfAProfileThatBeginsLate) {
  Subject subject = {.name = "x.heap", .period = 1024, .resident_bytes = 1 << 20};
  EXPECT_THAT(SummaryText(named_, Folded(), subject, {}, {}),
              HasSubstr("  resident   1.0M; live is 15.6% of that\n\n"));
  subject.begins_late = true;
  subject.recorded_for = absl::Seconds(63);
  const std::string text = SummaryText(named_, Folded(), subject, {}, {});
  EXPECT_THAT(text, HasSubstr("  resident   1.0M\n  since      the recording began, 1m03s ago; what is older is not "
                              "known\n\nwho holds most of what was allocated since then:\n   1. "));
  EXPECT_THAT(text, HasSubstr("\nThis is not growth: blocks that replace older ones are counted, but the frees of the "
                              "older ones are not known.\n"));
  EXPECT_THAT(text, HasSubstr("heaptap diff"));
  subject.recorded_for.reset();
  EXPECT_THAT(SummaryText(named_, Folded(), subject, {}, {}),
              HasSubstr("  since      the recording began; what is older is not known\n"));
}

// The first function that is not of a library stays, however deep it lies.
TEST(Summary, ShowsAFunctionOfTheUsersOwn) {
  const auto find = [](uint64_t address) -> std::vector<profile::SourceFrame> {
    const uint64_t number = address + 1 - 0x100;
    if (number == 9) return {{.function = "shop::decode", .file = "shop.cc", .line = 7}};
    return {{.function = absl::StrCat("std::f", number), .file = "vector", .line = 1}};
  };
  profile::Profile profile = {.period = 1};
  profile::Context& context = profile.contexts.emplace_back();
  for (uint64_t frame = 1; frame <= 14; frame++) context.frames.push_back(0x100 + frame);
  context.threads = {{.tid = 1, .live = {1, 8, 1, 8}, .allocated = {1, 8, 1, 8}}};
  const NamedProfile named(profile, find);
  const std::string text = SummaryText(named, named.paths(), {}, {}, {});
  EXPECT_THAT(text, HasSubstr("        std::f6 vector:1\n        ... 2 more\n        shop::decode shop.cc:7\n"
                              "        ... 3 more\n        std::f13 vector:1\n        std::f14 vector:1\n"));
}

TEST_F(ViewsTest, SummaryWithThePast) {
  const profile::Profile grown = {.contexts = {{.frames = {kLoad, kMain}, .threads = {{.live = {9, 2048, 9, 2048}}}},
                                               {.frames = {kMain}, .threads = {{.live = {9, 4096, -9, -4096}}}}}};
  const NamedProfile difference(grown, Find);
  const Past past = {.difference = difference, .paths = difference.paths(), .time = absl::Minutes(58)};
  const std::string text = SummaryText(named_, Folded(), {.next_commands = {"y"}}, {}, {.top = 1}, &past);
  EXPECT_THAT(text, HasSubstr("who holds most, 1 of 4 call paths:\n   1. "));
  const std::string section = text.substr(text.find("what grew"));
  EXPECT_THAT(section, StartsWith("what grew most in the last 58m00s:\n   1. +2.0K, +9 objects, 9 samples changed\n"));
  EXPECT_THAT(section, HasSubstr("main.cc:10\n\nnext:\n"));
  const Past nothing = {.difference = difference, .paths = difference.paths().subspan(1), .time = absl::Seconds(7)};
  EXPECT_THAT(SummaryText(named_, Folded(), {}, {}, {}, &nothing), HasSubstr("\nnothing grew in the last 7s\n"));
}

TEST_F(ViewsTest, TheIntervalStandsOnALineOfItsOwnInANarrowTerminal) {
  const Subject subject = {.name = "x", .period = 1024};
  const std::string head = "  live       159.8K +- 9.6K in 160 objects, 101 samples";
  const std::string interval = "(a sample every 1.0K bytes)\n";
  for (const size_t width : {size_t{0}, head.size() + interval.size()}) {
    EXPECT_THAT(SummaryText(named_, Folded(), subject, {}, {.width = width}), HasSubstr(head + " " + interval));
  }
  EXPECT_THAT(SummaryText(named_, Folded(), subject, {}, {.width = head.size() + interval.size() - 1}),
              HasSubstr(head + "\n             " + interval));
}

TEST_F(ViewsTest, LinesFitTheTerminal) {
  for (const size_t width : {20u, 40u, 80u}) {
    const std::string text = TopText(named_, Folded(), {.by = By::kLine, .full_names = true}, {.width = width});
    size_t longest = 0;
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      longest = std::max(longest, end - begin);
    }
    EXPECT_LE(longest, std::max<size_t>(width, 80)) << text;
  }
  EXPECT_EQ(Fit("abcdefghijklmnopqrstuvwxyz", 21), "abcdefghi...rstuvwxyz");
  EXPECT_EQ(Fit("\u00e4\u00f6\u00fc\u00c4\u00d6\u00dc", 6), "\u00e4\u00f6\u00fc\u00c4\u00d6\u00dc");
  EXPECT_EQ(Fit("\u00e4\u00f6\u00fc\u00c4\u00d6\u00dc", 5), "\u00e4...\u00dc");
}

TEST_F(ViewsTest, JsonHasEverything) {
  const std::vector<Path> paths(named_.paths().begin(), named_.paths().end());
  const std::string text = ReportJson(named_, paths, {.name = "x", .period = 1024}, 1).Text();
  EXPECT_THAT(text, HasSubstr(R"json("function":"parse(char const*)","file":"/src/parse.h","line":5)json"));
  EXPECT_THAT(text, Not(HasSubstr("Cache")));
}

TEST_F(ViewsTest, MarkdownIsATable) {
  const std::string text = Markdown(named_, Folded(), {.name = "a|`b", .period = 1024}, {}, {.top = 1});
  EXPECT_THAT(text, HasSubstr("## Heap of ``a\\|`b``\n"));
  EXPECT_THAT(text, HasSubstr("| 59.4% | 95 | 60 | `parse parse.h:5` ← `load load.cc:20` ← `main main.cc:10` |\n"));
  EXPECT_THAT(text, HasSubstr("\n3 more call paths.\n"));
  EXPECT_EQ(CodeSpan("`x"), "`` `x ``");
}

TEST_F(ViewsTest, SpeedscopeHasFourProfiles) {
  const std::vector<Path> paths(named_.paths().begin(), named_.paths().end());
  const std::string text = Speedscope(named_, paths, {.name = "x"});
  EXPECT_THAT(text, HasSubstr(R"json({"name":"parse(char const*)","file":"/src/parse.h","line":5})json"));
  for (const char* name : {"live bytes", "live objects", "allocated bytes", "allocated objects"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST_F(ViewsTest, WithoutWhatWasAllocated) {
  const std::vector<Path> paths(named_.paths().begin(), named_.paths().end());
  const std::string text = Speedscope(named_, paths, {.name = "x", .has_allocated = false});
  EXPECT_THAT(text, HasSubstr("live objects"));
  EXPECT_THAT(text, Not(HasSubstr("allocated")));
  const auto markdown = [&](bool has_allocated) {
    return Markdown(named_, paths, {.name = "x", .has_allocated = has_allocated}, {}, {});
  };
  EXPECT_THAT(markdown(true), HasSubstr("- allocated, freed or not: 586.9K"));
  EXPECT_THAT(markdown(false), Not(HasSubstr("allocated")));
}

TEST_F(ViewsTest, FlameGraph) {
  const Tree tree = MakeTree(named_, Folded(), {}, Direction::kInwards);
  const std::string text = FlameSvg(tree, {.name = "<a>&b"}, {});
  EXPECT_THAT(text, HasSubstr("&lt;a&gt;&amp;b: 159.8K live"));
  EXPECT_THAT(text, HasSubstr("<title>Cache&lt;...&gt;::fill: 47.5K, 29.7%, 30 samples</title>"));
  EXPECT_THAT(text,
              HasSubstr("<title>main: 158.2K, 99.0%, 100 samples</title><rect x=\"10.0\" y=\"48.0\" width=\"1167.8\""));
  EXPECT_THAT(text, Not(HasSubstr("<script")));
  EXPECT_THAT(FlameSvg({.nodes = {{}}}, {.name = "empty"}, {}), HasSubstr("</svg>\n"));
  Tree wide = tree;
  for (report::Node& node : wide.nodes) {
    node.name.clear();
    while (node.name.size() < 1000) node.name += "\u20ac";
  }
  const std::string cut = FlameSvg(wide, {.name = "x"}, {});
  EXPECT_THAT(cut, HasSubstr("\u20ac..</text>"));
  EXPECT_EQ(base::Printable(absl::StrReplaceAll(cut, {{"\n", ""}})), absl::StrReplaceAll(cut, {{"\n", ""}})) << "UTF-8";
}

TEST_F(ViewsTest, CallGraph) {
  const std::string text = Dot(named_, Folded(), {.name = "a\"b"}, {}, 80, 5);
  EXPECT_THAT(text, HasSubstr("digraph \"a\\\"b\" {"));
  EXPECT_THAT(text, HasSubstr("n0 [label=\"main\\n0 (0.0%) of 158.2K (99.0%)\""));
  EXPECT_THAT(text, HasSubstr("n0 -> n1 [label=\"94.9K\""));
  EXPECT_THAT(text, Not(HasSubstr("unknown"))) << "below 5 %";
}

// graphviz refuses texts of 16,384 bytes.
TEST(CallGraph, LongNamesAreCutBetweenCharacters) {
  const std::string name = absl::StrCat("x", std::string(10000, '"'), "end");
  std::string letters;
  while (letters.size() < 20000) letters += "\u00e4";  // two bytes
  for (const std::string& function : {name, letters, "x" + letters}) {
    const profile::Profile profile = {
        .contexts = {{.frames = {kMain}, .threads = {{.live = Estimate(10, 1024), .allocated = Estimate(10, 1024)}}}}};
    const NamedProfile named(profile,
                             [&](uint64_t) { return std::vector<profile::SourceFrame>{{.function = function}}; });
    const std::string text = Dot(named, named.paths(), {.name = function}, {}, 80, 0);
    for (const absl::string_view line : absl::StrSplit(text, '\n'))
      EXPECT_LT(line.size(), 16384u + 100) << line.substr(0, 40);
    // Not EXPECT_EQ: it would print the names.
    EXPECT_TRUE(base::Printable(text) == absl::StrReplaceAll(text, {{"\n", "\\012"}})) << "a character was cut";
    EXPECT_TRUE(absl::StrContains(text, "\\n15.8K (")) << "the figures are still there";
  }
}

TEST_F(ViewsTest, ACutPathHasAnotherRoot) {
  profile::Profile cut = profile_;
  cut.contexts[0].truncated = true;
  cut.contexts[3].truncated = true;  // without frames
  const NamedProfile marked(cut, Find, {}, Roots::kNone, CutPaths::kMarked);
  const std::vector<Path> paths = *Select(marked, {.fold = true});
  EXPECT_EQ(TreeText(MakeTree(marked, paths, {}, Direction::kInwards), marked.total(), {}, {.smallest = 50}),
            "    94.9K   59.4%  [outer frames missing]\n"
            "    94.9K   59.4%  main\n"
            "    94.9K   59.4%  load\n"
            "    94.9K   59.4%  parse\n"
            "2 branches below 50.0% are not shown (see --smallest)\n");
  EXPECT_THAT(Speedscope(marked, paths, {.name = "x"}), HasSubstr(R"({"name":"[outer frames missing]"})"));
  // A thread is no frame that is missing.
  const NamedProfile threads(cut, Find, {}, Roots::kThreads, CutPaths::kMarked);
  const NamedFrame& root = threads.frame(threads.paths()[0].frames.back());
  EXPECT_THAT(std::string(threads.text(root.function)), HasSubstr("thread"));
  const NamedProfile bare(cut, Find);
  EXPECT_EQ(bare.paths()[0].frames.size(), named_.paths()[0].frames.size());
}

// jeprof 5.3 on the same profile.
TEST_F(ViewsTest, JeprofTable) {
  EXPECT_EQ(*JeprofText(named_, {.show_bytes = true}),
            "Total: 163614 B\n"
            "   97196  59.4%  59.4%    97196  59.4% parse (inline)\n"
            "   48598  29.7%  89.1%    48598  29.7% std::vector::push_back\n"
            "   16199   9.9%  99.0%    16199   9.9% libx.so+0x560\n"
            "    1619   1.0% 100.0%     1619   1.0% [unknown call path]\n"
            "       0   0.0% 100.0%    48598  29.7% Cache::fill\n"
            "       0   0.0% 100.0%    97196  59.4% load\n"
            "       0   0.0% 100.0%   161994  99.0% main\n");
  EXPECT_THAT(*JeprofText(named_, {.lines = true}),
              HasSubstr("0.1  59.4%  59.4%      0.1  59.4% parse (inline) /src/"));
  EXPECT_THAT(*JeprofText(named_, {.exclude = "^(load|std::)"}), Not(HasSubstr("parse")));
  EXPECT_TRUE(absl::IsInvalidArgument(JeprofText(named_, {.focus = "["}).status()));
}

TEST(JeprofName, IsShort) {
  EXPECT_EQ(JeprofName("void std::vector<int, std::allocator<int> >::push_back(int&&)"), "std::vector::push_back");
  EXPECT_EQ(JeprofName("Server::run(int) const"), "Server::run");
  EXPECT_EQ(JeprofName("main"), "main");
}

}  // namespace
}  // namespace heaptap::report
