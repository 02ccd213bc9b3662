// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <string>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/jemalloc/stats/emitter.h"
#include "allocator/jemalloc/stats/print.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

void Append(void* opaque, const char* text) { *static_cast<std::string*>(opaque) += text; }

using Form = StatisticsEmitter::Form;

template <typename Function>
std::string Emit(Form form, Function function) {
  std::string result;
  {
    StatisticsEmitter emitter(form, Append, &result);
    function(&emitter);
  }
  return result;
}

std::string Print(const char* options) {
  std::string result;
  PrintStatistics(Append, &result, options);
  return result;
}

// Whether the text is one JSON value, with nothing behind it.
class Json {
 public:
  static bool IsValid(const std::string& text) {
    Json json{text.c_str()};
    return json.Value() && *json.at_ == '\0';
  }

 private:
  explicit Json(const char* at) : at_(at) {}

  bool Take(char character) { return *at_ == character && at_++ != nullptr; }
  bool Take(const char* word) {
    bool there = strncmp(at_, word, strlen(word)) == 0;
    if (there) at_ += strlen(word);
    return there;
  }
  bool Text() {
    if (!Take('"')) return false;
    for (; *at_ != '"'; at_++) {
      if (static_cast<unsigned char>(*at_) < ' ') return false;
      if (*at_ == '\\') at_++;
    }
    return Take('"');
  }
  bool Number() {
    Take('-');
    const char* first = at_;
    while (isdigit(static_cast<unsigned char>(*at_))) at_++;
    return at_ != first;
  }
  template <typename Element>
  bool List(char end, Element element) {
    if (Take(end)) return true;
    do {
      if (!element()) return false;
    } while (Take(','));
    return Take(end);
  }
  bool Value() {
    if (Take('{')) return List('}', [this] { return Text() && Take(':') && Value(); });
    if (Take('[')) return List(']', [this] { return Value(); });
    return *at_ == '"' ? Text() : Take("true") || Take("false") || Number();
  }

  const char* at_;
};

TEST(StatisticsEmitter, Json) {
  EXPECT_EQ(Emit(Form::kJson,
                 [](StatisticsEmitter* emitter) {
                   emitter->BeginObject();
                   emitter->Entry("a", "Alpha", 1);
                   emitter->Entry("b", "Beta", true, "now", false);
                   emitter->BeginSection("c", "Gamma");
                   emitter->Entry("d", "Delta", "x\"y\\\n");
                   emitter->EndSection();
                   emitter->BeginArray("e");
                   emitter->EndArray();
                   emitter->BeginArray("f");
                   for (int i = -1; i < 1; i++) {
                     emitter->BeginObject();
                     emitter->Member("g", i);
                     emitter->EndObject();
                   }
                   emitter->EndArray();
                   emitter->Member("h", UINT64_MAX);
                   emitter->Text("not here").Text(7);
                   emitter->EndObject();
                 }),
            "{\"a\":1,\"b\":true,\"c\":{\"d\":\"x\\\"y\\\\\\u000a\"},\"e\":[],\"f\":[{\"g\":-1},{\"g\":0}],"
            "\"h\":18446744073709551615}");
}

TEST(StatisticsEmitter, Text) {
  constexpr StatisticsColumn kColumns[] = {{"name", 6, true}, {"number", 8}, {"x", 2}};
  EXPECT_EQ(Emit(Form::kText,
                 [&](StatisticsEmitter* emitter) {
                   emitter->BeginObject();
                   emitter->Entry("a", "Alpha", INT64_MIN);
                   emitter->BeginSection("c", "Gamma");
                   emitter->Entry("b", "beta", true, "now", false);
                   emitter->Entry("d", "delta", "x\"y");
                   emitter->EndSection();
                   emitter->Member("h", 1);
                   emitter->Text("ab");
                   emitter->Headings(kColumns, 2);
                   emitter->Text("\n");
                   emitter->Cells(kColumns, {"one", 1, "too wide"});
                   emitter->Text("\n").Text(7).Text("\n");
                   emitter->EndObject();
                 }),
            "Alpha: -9223372036854775808\nGamma\n  beta: true (now: false)\n  delta: \"x\"y\"\n"
            "abname  number x\none          1too wide\n7\n");
}

// Reports longer than the buffer come in several pieces, and whole.
TEST(StatisticsEmitter, LongReports) {
  std::string expected;
  EXPECT_EQ(Emit(Form::kText,
                 [&](StatisticsEmitter* emitter) {
                   for (int i = 0; i < 5000; i++) {
                     emitter->Text(static_cast<uint64_t>(i)).Text(",");
                     expected += std::to_string(i) + ",";
                   }
                   std::string line(3000, 'x');
                   emitter->Text(line.c_str());
                   expected += line;
                 }),
            expected);
}

TEST(StatisticsPrint, BeginsAndEnds) {
  std::string text = Print(nullptr);
  EXPECT_EQ(text.find("___ Begin jemalloc statistics ___\n"), 0);
  std::string end = "--- End jemalloc statistics ---\n";
  EXPECT_EQ(text.substr(text.size() - end.size()), end);
  EXPECT_TRUE(Json::IsValid(Print("J")));
}

// What each letter leaves out, by something that stands there alone.
TEST(StatisticsPrint, LettersLeaveOut) {
  struct Part {
    const char* letters;
    const char* text;
    const char* json;
  };
  const Part parts[] = {
      {"g", "Run-time option settings\n", "\"opt\":"},
      {"mda", "decaying:", "\"stats.arenas\":"},
      {"b", "\nbins:", "\"bins\":"},
      {"l", "\nlarge:          size", "\"lextents\":"},
      {"x", "extents_retained", "\"mutexes\":"},
      {"e", "\nextents:", "\"extents\":"},
      {"h", "HPA shard stats:", "\"empty_slabs\":"},
  };
  for (const Part& part : parts) {
    std::string json = std::string("J") + part.letters;
    EXPECT_NE(Print("").find(part.text), std::string::npos) << part.letters;
    EXPECT_EQ(Print(part.letters).find(part.text), std::string::npos) << part.letters;
    EXPECT_NE(Print("J").find(part.json), std::string::npos) << part.letters;
    EXPECT_EQ(Print(json.c_str()).find(part.json), std::string::npos) << part.letters;
    EXPECT_TRUE(Json::IsValid(Print(json.c_str()))) << part.letters;
  }
  EXPECT_NE(Print("m").find("\narenas[0]:\n"), std::string::npos);
  EXPECT_NE(Print("a").find("\nMerged arenas stats:\n"), std::string::npos);
  EXPECT_NE(Print("Ja").find("\"merged\":"), std::string::npos);
  EXPECT_EQ(Print("dqz ").find("___ Begin"), 0);  // 'd', and what is no letter of jemalloc's
}

TEST(StatisticsPrint, TakesASnapshot) {
  uint64_t epoch = SnapshotEpoch();
  void* pointer = Allocate(30 << 20);
  std::string json = Print("J");
  EXPECT_EQ(SnapshotEpoch(), epoch + 1);
  Snapshot snapshot;
  LastSnapshot(&snapshot);
  EXPECT_NE(json.find("\"stats\":{\"allocated\":" + std::to_string(snapshot.allocated) + ","), std::string::npos);
  EXPECT_GE(snapshot.allocated, size_t{30} << 20);
  Free(pointer);
}

// The callback may allocate and ask for statistics itself.
TEST(StatisticsPrint, CallbackMayDoWhatItLikes) {
  static int calls;
  calls = 0;
  PrintStatistics(
      [](void* opaque, const char* text) {
        EXPECT_EQ(opaque, &calls);
        EXPECT_GT(strlen(text), 0);
        Free(Allocate(strlen(text)));
        if (calls++ != 0) return;
        EXPECT_TRUE(Json::IsValid(Print("J")));
      },
      &calls, "J");
  EXPECT_GT(calls, 1);
}

std::string* said;

TEST(StatisticsPrint, WithoutACallbackItIsAMessage) {
  std::string text;
  said = &text;
  malloc_message = [](void*, const char* piece) { *said += piece; };
  PrintStatistics(nullptr, nullptr, "J");
  EXPECT_TRUE(Json::IsValid(text));
  text.clear();
  PrintStatistics("J");
  EXPECT_TRUE(Json::IsValid(text));
  text.clear();
  PrintStatisticsAtExit();
  EXPECT_EQ(text.find("___ Begin"), 0);
  malloc_message = nullptr;
}

TEST(PerSecond, IsAnAverage) {
  EXPECT_EQ(PerSecond(1000, 0), 1000);
  EXPECT_EQ(PerSecond(1000, 999999999), 1000);
  EXPECT_EQ(PerSecond(1000, 3500000000), 333);
}

}  // namespace
}  // namespace heaptap
