// SPDX-License-Identifier: Apache-2.0
//
// Tests which bytes are a valid request or a valid answer.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/memory_channel.h"
#include "userspace/base/clock.h"
#include "userspace/http/wire.h"

namespace heaptap::http {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// --- targets ---

Request ParsedTarget(absl::string_view target) {
  Request request;
  EXPECT_TRUE(ParseTarget(target, request)) << target;
  return request;
}

TEST(ParseTargetTest, Paths) {
  for (const auto& [target, path] : std::vector<std::pair<std::string, std::string>>{
           {"/", "/"},
           {"/a/b+c", "/a/b+c"},
           {"/%61%2fb%2B", "/a/b+"},
           {"/%00%fF", std::string("/\0\xff", 3)},
           {"/%", "/%"},
           {"/%4", "/%4"},
           {"/%4g%g4", "/%4g%g4"},
           {"/%+1%-1%0x", "/%+1%-1%0x"},
           {"/% 41%%41", "/% 41%A"},
           {"/%2541", "/%41"},
           {"/%u0041", "/%u0041"},
           {"/a#b?c", "/a"},
           {"/a%3fb=c", "/a?b=c"},
       }) {
    const Request request = ParsedTarget(target);
    EXPECT_EQ(request.path, path) << target;
    EXPECT_THAT(request.parameters, IsEmpty()) << target;
  }
}

TEST(ParseTargetTest, Parameters) {
  EXPECT_THAT(ParsedTarget("/x?a=1&b=%26%3D+%2b&c&d=&e=f=g#h=i").parameters,
              ElementsAre(Pair("a", "1"), Pair("b", "&= +"), Pair("c", ""), Pair("d", ""), Pair("e", "f=g")));
  EXPECT_THAT(ParsedTarget("/?%61+b=%zz").parameters, ElementsAre(Pair("a b", "%zz")));
  EXPECT_EQ(ParsedTarget("/?a=1&a=2").Parameter("a"), "1");
  for (const char* target : {"/?", "/?&&&", "/?=", "/?=x&=y"}) {
    EXPECT_THAT(ParsedTarget(target).parameters, IsEmpty()) << target;
  }
}

TEST(ParseTargetTest, NotATarget) {
  Request request;
  for (const char* target : {"", "*", "x", "?", "#/", "http://localhost/", "/a?b?c"}) {
    EXPECT_FALSE(ParseTarget(target, request)) << target;
  }
}

// --- requests ---

IncomingRequest Read(absl::string_view text) {
  MemoryChannel channel{std::string(text)};
  const Limits limits;
  return RequestReader(channel, limits).Next().value_or(IncomingRequest{.refusal = -1});
}

// The status with which a request is refused.
int Refused(absl::string_view text) { return Read(text).refusal; }
int RefusedLine(absl::string_view line) { return Refused(absl::StrCat(line, "\r\n\r\n")); }
int RefusedHeader(absl::string_view header) {
  return Refused(absl::StrCat("GET / HTTP/1.1\r\nHost: localhost\r\n", header, "\r\n\r\n"));
}

TEST(RequestReaderTest, Plain) {
  const IncomingRequest incoming =
      Read("POST /x?y HTTP/1.1\r\nHost:  localhost:1 \r\ncontent-length: 12\r\n\r\n0123456789ab");
  EXPECT_EQ(incoming.refusal, 0);
  EXPECT_EQ(incoming.request.method, "POST");
  EXPECT_EQ(incoming.request.path, "/x");
  EXPECT_THAT(incoming.request.parameters, ElementsAre(Pair("y", "")));
  EXPECT_EQ(incoming.request.body, "0123456789ab");
  EXPECT_EQ(incoming.host, "localhost:1");
  EXPECT_TRUE(incoming.keep_alive);
  EXPECT_FALSE(incoming.is_cross_site);
}

TEST(RequestReaderTest, KeepAlive) {
  EXPECT_TRUE(Read("GET / HTTP/1.1\r\n\r\n").keep_alive);
  EXPECT_TRUE(Read("GET / HTTP/1.1\r\nConnection: keep-alive\r\n\r\n").keep_alive);
  EXPECT_FALSE(Read("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n").keep_alive);
  EXPECT_FALSE(Read("GET / HTTP/1.1\r\nConnection: keep-alive, close\r\n\r\n").keep_alive);
  EXPECT_FALSE(Read("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_FALSE(Read("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
}

TEST(RequestReaderTest, Lines) {
  EXPECT_EQ(RefusedLine("GET / HTTP/1.1"), 0);
  EXPECT_EQ(RefusedLine("HEAD / HTTP/1.0"), 0);
  EXPECT_EQ(RefusedLine("PUT / HTTP/1.1"), 405);
  EXPECT_EQ(RefusedLine("get / HTTP/1.1"), 405);
  EXPECT_EQ(RefusedLine("G@T / HTTP/1.1"), 400);
  EXPECT_EQ(RefusedLine("GET / HTTP/2"), 505);
  EXPECT_EQ(RefusedLine("GET / HTTP/1.2"), 505);
  EXPECT_EQ(RefusedLine("GET / HTTQ/1.1"), 505);
  EXPECT_EQ(RefusedLine("GET  / HTTP/1.1"), 400);
  EXPECT_EQ(RefusedLine("GET /"), 400);
  EXPECT_EQ(RefusedLine("GET http://localhost/ HTTP/1.1"), 400);
  EXPECT_EQ(RefusedLine("GET * HTTP/1.1"), 400);
  EXPECT_EQ(RefusedLine("GET /?a?b HTTP/1.1"), 400);
  EXPECT_EQ(RefusedLine(""), 400);
  EXPECT_EQ(RefusedLine(absl::string_view("GET /\0 HTTP/1.1", 15)), 400);
  EXPECT_EQ(RefusedLine("GET /\x7f HTTP/1.1"), 400);
  EXPECT_NE(RefusedLine("GET / HTTP/1.1\nHost: localhost"), 0);
  EXPECT_NE(RefusedLine("GET / HTTP/1.1\n"), 0);
  EXPECT_EQ(RefusedLine(absl::StrCat("GET /", std::string(8191, 'x'), " HTTP/1.1")), 0);
  EXPECT_EQ(RefusedLine(absl::StrCat("GET /", std::string(8192, 'x'), " HTTP/1.1")), 414);
}

TEST(RequestReaderTest, Headers) {
  EXPECT_EQ(RefusedHeader("X-Any: thing"), 0);
  EXPECT_EQ(RefusedHeader("X-Any:"), 0);
  EXPECT_EQ(RefusedHeader("X-Any: \xc3\xa4\t "), 0);
  EXPECT_EQ(RefusedHeader("X-Any"), 400);
  EXPECT_EQ(RefusedHeader("X Any: thing"), 400);
  EXPECT_EQ(RefusedHeader("X-Any : thing"), 400);
  EXPECT_EQ(RefusedHeader(" continued: line"), 400);
  EXPECT_EQ(RefusedHeader("X-Any:\r\n continued"), 400);
  EXPECT_EQ(RefusedHeader("X-Any: a\r\n\tcontinued"), 400);
  EXPECT_EQ(RefusedHeader(": nothing"), 400);
  EXPECT_EQ(RefusedHeader("X-Any: a\rb"), 400);
  EXPECT_EQ(RefusedHeader("X-Any: a\nb"), 400);
  EXPECT_EQ(RefusedHeader("X-Any: a\nContent-Length: 1"), 400);
  EXPECT_EQ(RefusedHeader("X-Any: \x01"), 400);
  EXPECT_EQ(RefusedHeader(absl::string_view("X-Any: \0", 8)), 400);
  EXPECT_EQ(RefusedHeader("Host: twice"), 400);
  EXPECT_EQ(RefusedHeader("Transfer-Encoding: chunked"), 501);
  EXPECT_EQ(RefusedHeader("Transfer-Encoding: identity"), 501);
  EXPECT_EQ(RefusedHeader("Transfer-Encoding: chunked\r\nContent-Length: 1"), 501);
  EXPECT_EQ(RefusedHeader("Content-Length: 1\r\nTransfer-Encoding: chunked"), 400);
  EXPECT_EQ(RefusedHeader("Content-Encoding: gzip"), 415);
  EXPECT_EQ(RefusedHeader("Content-Encoding: Identity"), 0);
  EXPECT_EQ(RefusedHeader("Expect: 100-continue"), 0);
  EXPECT_EQ(RefusedHeader("Expect: 200-ok"), 417);
  EXPECT_EQ(RefusedHeader("Range: bytes=0-1,0-1,0-1"), 0) << "it is ignored";
  EXPECT_EQ(RefusedHeader("Connection: upgrade\r\nUpgrade: h2c"), 0) << "it is ignored";
}

TEST(RequestReaderTest, Lengths) {
  EXPECT_EQ(RefusedHeader("Content-Length: 0"), 0);
  EXPECT_EQ(RefusedHeader("Content-Length: 4194304"), 408) << "the body is awaited";
  for (const char* length : {"4194305", "999999999999999999", "9999999999999999999", "18446744073709551615"}) {
    EXPECT_EQ(RefusedHeader(absl::StrCat("Content-Length: ", length)), 413) << length;
  }
  for (const char* length :
       {"", "-1", "+1", "0x1", "1 2", "1,1", "1e3", "18446744073709551616", "18446744073709551617"}) {
    EXPECT_EQ(RefusedHeader(absl::StrCat("Content-Length: ", length)), 400) << length;
  }
  EXPECT_EQ(RefusedHeader("Content-Length: 1\r\nContent-Length: 1"), 400);
  EXPECT_EQ(RefusedHeader("Content-Length: 1\r\nContent-Length: 2"), 400);
}

TEST(RequestReaderTest, Browsers) {
  const std::pair<const char*, bool> kLines[] = {
      {"Origin: http://evil.example", true}, {"Origin: null", true},          {"Sec-Fetch-Site: cross-site", true},
      {"Sec-Fetch-Site: same-site", true},   {"sec-fetch-site: none", false}, {"Sec-Fetch-Site: same-origin", false},
  };
  for (const auto& [line, is_cross_site] : kLines) {
    const IncomingRequest incoming = Read(absl::StrCat("GET / HTTP/1.1\r\n", line, "\r\n\r\n"));
    EXPECT_EQ(incoming.refusal, 0);
    EXPECT_EQ(incoming.is_cross_site, is_cross_site) << line;
  }
}

TEST(RequestReaderTest, SignsOfBrowsers) {
  const std::pair<const char*, bool> kLines[] = {
      {"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/605.1.15 (KHTML, like Gecko) Safari/605.1.15", true},
      {"Origin: http://localhost", true},
      {"Referer: http://evil.example/", true},
      {"accept-language: en", true},
      {"Sec-Fetch-Mode: no-cors", true},
      {"sec-ch-ua-platform: \"Linux\"", true},
      {"Upgrade-Insecure-Requests: 1", true},
      {"User-Agent: curl/7.88.1", false},
      {"User-Agent: Wget/1.21.3", false},
      {"User-Agent: Go-http-client/1.1", false},
      {"Accept: */*", false},
      {"Accept-Encoding: gzip, deflate", false},
      {"Connection: keep-alive", false},
  };
  for (const auto& [line, is_of_browser] : kLines) {
    EXPECT_EQ(Read(absl::StrCat("GET / HTTP/1.1\r\n", line, "\r\n\r\n")).request.is_of_browser, is_of_browser) << line;
  }
}

TEST(RequestReaderTest, HeaderSize) {
  const std::string line = "GET / HTTP/1.1\r\nX: ";
  const Limits limits;
  const std::string largest(limits.header_bytes - line.size() - 4, 'x');
  EXPECT_EQ(Refused(absl::StrCat(line, largest, "\r\n\r\n")), 0);
  EXPECT_EQ(Refused(absl::StrCat(line, largest, "x\r\n\r\n")), 431);
  EXPECT_EQ(Refused(std::string(1 << 20, 'x')), 431);
}

TEST(RequestReaderTest, AnyPieces) {
  const std::string text = "POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n";
  for (size_t length = 1; length <= text.size(); ++length) {
    MemoryChannel channel(text, length);
    const Limits limits;
    RequestReader reader(channel, limits);
    const std::optional<IncomingRequest> first = reader.Next();
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->refusal, 0);
    EXPECT_EQ(first->request.path, "/a");
    EXPECT_EQ(first->request.body, "abc");
    const std::optional<IncomingRequest> second = reader.Next();
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(second->request.path, "/b");
    EXPECT_EQ(second->request.body, "");
    EXPECT_FALSE(reader.Next().has_value());
  }
}

TEST(RequestReaderTest, Truncated) {
  for (const char* text : {"G", "GET / HTTP/1.1\r\n\r", "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"}) {
    EXPECT_EQ(Refused(text), 408) << text;
  }
}

TEST(RequestReaderTest, Continue) {
  const Limits limits;
  const std::string head = "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
  MemoryChannel waits(head + "x", head.size());
  EXPECT_EQ(RequestReader(waits, limits).Next()->request.body, "x");
  EXPECT_EQ(waits.output, "HTTP/1.1 100 Continue\r\n\r\n");
  MemoryChannel does_not_wait(head + "x");
  EXPECT_EQ(RequestReader(does_not_wait, limits).Next()->request.body, "x");
  EXPECT_EQ(does_not_wait.output, "");
}

// --- written answers ---

TEST(ResponseTest, Head) {
  Response response = {.status = 404, .content_type = "x/y", .body = "hello", .headers = {{"A", "b"}, {"C", "d"}}};
  EXPECT_EQ(ResponseHead(response, true),
            "HTTP/1.1 404 Not Found\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
            "Content-Type: x/y\r\nContent-Length: 5\r\nA: b\r\nC: d\r\n\r\n");
  EXPECT_EQ(ResponseHead({.content_type = "x"}, false),
            "HTTP/1.1 200 OK\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
            "Content-Type: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

TEST(ResponseTest, Refusals) {
  for (int status : {400, 403, 405, 408, 413, 414, 415, 417, 431, 501, 503, 505}) {
    const std::string text = Refusal(status);
    MemoryChannel channel(text);
    const absl::StatusOr<Answer> answer = ReadAnswer(channel, 100, Patience{});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->status, status);
    EXPECT_THAT(answer->body, ::testing::MatchesRegex("[A-Z][A-Za-z ]+\n"));
  }
}

// --- read answers ---

constexpr size_t kMaxBody = 100;

// Parses the answer in `text` in pieces of several sizes; all results must be equal.
absl::StatusOr<Answer> Parse(const std::string& text) {
  const auto parse = [&text](size_t piece) {
    MemoryChannel channel(text, piece);
    return ReadAnswer(channel, kMaxBody, Patience{});
  };
  absl::StatusOr<Answer> first = parse(1);
  for (size_t piece : {2, 3, 7, 1000000}) {
    const absl::StatusOr<Answer> next = parse(piece);
    EXPECT_EQ(next.status().code(), first.status().code()) << piece << " " << text;
    if (next.ok() && first.ok()) {
      EXPECT_EQ(next->body, first->body) << piece;
    }
  }
  return first;
}

TEST(ReadAnswerTest, WithALength) {
  const absl::StatusOr<Answer> answer = Parse("HTTP/1.1 404 Not Found\r\nA: b\r\ncontent-LENGTH:  5 \r\n\r\nhello");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->body, "hello");
}

TEST(ReadAnswerTest, UntilTheEnd) {
  const absl::StatusOr<Answer> answer = Parse("HTTP/1.0 200 OK\r\n\r\nhello");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "hello");
  const absl::StatusOr<Answer> empty = Parse("HTTP/1.1 200 OK\r\n\r\n");
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->body, "");
}

TEST(ReadAnswerTest, InChunks) {
  const std::string text =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n \r\nA\r\n0123456789\r\n0\r\n";
  for (const char* trailer : {"\r\n", "X: y\r\n\r\n"}) {
    const absl::StatusOr<Answer> answer = Parse(text + trailer);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->body, "hello 0123456789");
  }
}

TEST(ReadAnswerTest, EmptyBody) {
  const absl::StatusOr<Answer> answer = Parse("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "");
}

TEST(ReadAnswerTest, CutOff) {
  for (const char* text : {"", "HTTP/1.1 200 OK", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe"}) {
    EXPECT_TRUE(absl::IsDataLoss(Parse(text).status())) << text;
  }
}

TEST(ReadAnswerTest, NoHttp) {
  for (const char* text : {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 OK\r\n\r\n",
                           "HTTP/1.1 999 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n", "HTTP/1.1 -20 OK\r\n\r\n",
                           "HTTP/1.1 \r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
                           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
                           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\nhello\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n"}) {
    EXPECT_TRUE(absl::IsDataLoss(Parse(text).status())) << text;
  }
}

TEST(ReadAnswerTest, TooLong) {
  const std::string body(kMaxBody + 1, 'x');
  for (const std::string& text :
       {absl::StrCat("HTTP/1.1 200 OK\r\n\r\n", body),
        absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"),
        absl::StrCat("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n32\r\n", body.substr(0, 50),
                     "\r\n33\r\n")}) {
    EXPECT_TRUE(absl::IsResourceExhausted(Parse(text).status())) << text;
  }
  const absl::StatusOr<Answer> just = Parse(absl::StrCat("HTTP/1.1 200 OK\r\n\r\n", body.substr(1)));
  EXPECT_TRUE(just.ok()) << just.status();
}

TEST(ReadAnswerTest, WithoutEnd) {
  std::string lines;
  while (lines.size() <= 3 * kMaxAnswerHeadBytes) lines.append("X: y\r\n");
  const std::string xs(3 * kMaxAnswerHeadBytes, 'x');
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& text : {absl::StrCat("HTTP/1.1 200 OK\r\n", lines), xs, absl::StrCat("HTTP/1.1 200 ", xs),
                                  absl::StrCat("HTTP/1.1 200 OK\r\nX: ", xs), absl::StrCat(chunked, "1;", xs),
                                  absl::StrCat(chunked, "0\r\n", lines)}) {
    for (size_t piece : {1, 6, 1000, 100000}) {
      MemoryChannel channel(text, piece);
      const absl::Status status = ReadAnswer(channel, kMaxBody, Patience{}).status();
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("not valid HTTP"));
    }
  }
}

TEST(ReadAnswerTest, TellsWhereARedirectionLeads) {
  EXPECT_EQ(Parse("HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")->location, "/x");
  EXPECT_EQ(Parse("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")->location, "");
}

TEST(ReadAnswerTest, TooLate) {
  MemoryChannel channel("HTTP/1.1 200 OK\r\n");
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(ReadAnswer(channel, kMaxBody, {.deadline = base::Instant::InfinitePast()}).status()));
}

}  // namespace
}  // namespace heaptap::http
