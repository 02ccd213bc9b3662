// SPDX-License-Identifier: Apache-2.0
//
// Tests which bytes are a valid request.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/service/http_request_reader.h"

namespace heaptap::service {
namespace {

int Parse(absl::string_view text, RequestHead& head) { return ParseHead(text, HttpLimits(), head); }

int Parse(absl::string_view text) {
  RequestHead head;
  return Parse(text, head);
}

// The status with which a request with one more header line is refused.
int ParseWith(absl::string_view line) {
  return Parse(absl::StrCat("GET / HTTP/1.1\r\nHost: localhost\r\n", line, "\r\n\r\n"));
}

TEST(ParseHeadTest, Plain) {
  RequestHead head;
  EXPECT_EQ(Parse("POST /x?y HTTP/1.1\r\nHost:  localhost:1 \r\ncontent-length: 12\r\n\r\n", head), 0);
  EXPECT_EQ(head.line, "POST /x?y HTTP/1.1");
  EXPECT_EQ(head.host, "localhost:1");
  EXPECT_EQ(head.body_bytes, 12);
  EXPECT_TRUE(head.keep_alive);
  EXPECT_FALSE(head.waits_for_continue);
  EXPECT_FALSE(head.is_cross_site);
}

TEST(ParseHeadTest, KeepAlive) {
  RequestHead head;
  EXPECT_EQ(Parse("GET / HTTP/1.0\r\n\r\n", head), 0);
  EXPECT_FALSE(head.keep_alive);
  RequestHead closing;
  EXPECT_EQ(Parse("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n", closing), 0);
  EXPECT_FALSE(closing.keep_alive);
}

TEST(ParseHeadTest, Lines) {
  EXPECT_EQ(Parse("GET / HTTP/1.1\r\n\r\n"), 0);
  EXPECT_EQ(Parse("PUT / HTTP/1.1\r\n\r\n"), 405);
  EXPECT_EQ(Parse("get / HTTP/1.1\r\n\r\n"), 405);
  EXPECT_EQ(Parse("G@T / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(Parse("GET / HTTP/2\r\n\r\n"), 505);
  EXPECT_EQ(Parse("GET / HTTQ/1.1\r\n\r\n"), 400);
  EXPECT_EQ(Parse("GET  / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(Parse("GET /\r\n\r\n"), 400);
  EXPECT_EQ(Parse("GET http://localhost/ HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(Parse("GET * HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(Parse("\r\n\r\n"), 400);
  EXPECT_EQ(Parse("GET / HTTP/1.1\n\n"), 400);
  EXPECT_EQ(Parse(absl::string_view("GET /\0 HTTP/1.1\r\n\r\n", 19)), 400);
  EXPECT_EQ(Parse(absl::StrCat("GET /", std::string(8191, 'x'), " HTTP/1.1\r\n\r\n")), 0);
  EXPECT_EQ(Parse(absl::StrCat("GET /", std::string(8192, 'x'), " HTTP/1.1\r\n\r\n")), 414);
}

TEST(ParseHeadTest, Headers) {
  EXPECT_EQ(ParseWith("X-Any: thing"), 0);
  EXPECT_EQ(ParseWith("X-Any:"), 0);
  EXPECT_EQ(ParseWith("X-Any"), 400);
  EXPECT_EQ(ParseWith("X Any: thing"), 400);
  EXPECT_EQ(ParseWith("X-Any : thing"), 400);
  EXPECT_EQ(ParseWith(" continued: line"), 400);
  EXPECT_EQ(ParseWith(": nothing"), 400);
  EXPECT_EQ(ParseWith("X-Any: a\rb"), 400);
  EXPECT_EQ(ParseWith("X-Any: a\nb"), 400);
  EXPECT_EQ(ParseWith("X-Any: \x01"), 400);
  EXPECT_EQ(ParseWith("Host: twice"), 400);
  EXPECT_EQ(ParseWith("Transfer-Encoding: chunked"), 501);
  EXPECT_EQ(ParseWith("Content-Encoding: gzip"), 415);
  EXPECT_EQ(ParseWith("Content-Encoding: identity"), 0);
  EXPECT_EQ(ParseWith("Expect: 100-continue"), 0);
  EXPECT_EQ(ParseWith("Expect: 200-ok"), 417);
  EXPECT_EQ(ParseWith("Range: bytes=0-1,0-1,0-1"), 0) << "it is ignored";
}

TEST(ParseHeadTest, Lengths) {
  EXPECT_EQ(ParseWith("Content-Length: 0"), 0);
  EXPECT_EQ(ParseWith("Content-Length: 4194304"), 0);
  EXPECT_EQ(ParseWith("Content-Length: 4194305"), 413);
  EXPECT_EQ(ParseWith("Content-Length: 999999999999999999"), 413);
  for (const char* length :
       {"", "-1", "+1", "0x1", "1 2", "1,1", "1e3", "9999999999999999999", "18446744073709551617"}) {
    EXPECT_EQ(ParseWith(absl::StrCat("Content-Length: ", length)), 400) << length;
  }
  EXPECT_EQ(ParseWith("Content-Length: 1\r\nContent-Length: 1"), 400);
}

TEST(ParseHeadTest, Browsers) {
  const std::pair<const char*, bool> kLines[] = {
      {"Origin: http://evil.example", true}, {"Origin: null", true},          {"Sec-Fetch-Site: cross-site", true},
      {"Sec-Fetch-Site: same-site", true},   {"sec-fetch-site: none", false}, {"Sec-Fetch-Site: same-origin", false},
  };
  for (const auto& [line, is_cross_site] : kLines) {
    RequestHead head;
    EXPECT_EQ(Parse(absl::StrCat("GET / HTTP/1.1\r\n", line, "\r\n\r\n"), head), 0);
    EXPECT_EQ(head.is_cross_site, is_cross_site) << line;
  }
}

TEST(ParseHeadTest, Size) {
  const std::string line = "GET / HTTP/1.1\r\nX: ";
  const HttpLimits limits;
  const std::string largest(limits.header_bytes - line.size() - 4, 'x');
  EXPECT_EQ(Parse(absl::StrCat(line, largest, "\r\n\r\n")), 0);
  EXPECT_EQ(Parse(absl::StrCat(line, largest, "x\r\n\r\n")), 431);
}

// A client that sends these pieces, and then nothing.
class Pieces : public HttpChannel {
 public:
  explicit Pieces(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

  size_t Read(char* to, size_t size, absl::Time) override {
    if (next_ == pieces_.size()) return 0;
    std::string& piece = pieces_[next_];
    const size_t count = std::min(size, piece.size());
    std::copy_n(piece.data(), count, to);
    piece.erase(0, count);
    if (piece.empty()) ++next_;
    return count;
  }
  bool Write(absl::string_view bytes, absl::Time) override {
    written.append(bytes.data(), bytes.size());
    return true;
  }
  bool Sleep(absl::Duration) override { return false; }

  std::string written;

 private:
  std::vector<std::string> pieces_;
  size_t next_ = 0;
};

TEST(HttpRequestReaderTest, AnyPieces) {
  const std::string text = "POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n";
  for (size_t length = 1; length <= text.size(); ++length) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size(); at += length) pieces.push_back(text.substr(at, length));
    Pieces channel(pieces);
    const HttpLimits limits;
    HttpRequestReader reader(channel, limits);
    const std::optional<IncomingRequest> first = reader.Next();
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->refusal, 0);
    EXPECT_EQ(first->head.line, "POST /a HTTP/1.1");
    EXPECT_EQ(first->body, "abc");
    const std::optional<IncomingRequest> second = reader.Next();
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(second->head.line, "GET /b HTTP/1.1");
    EXPECT_EQ(second->body, "");
    EXPECT_FALSE(reader.Next().has_value());
  }
}

TEST(HttpRequestReaderTest, Truncated) {
  const HttpLimits limits;
  for (const char* text : {"G", "GET / HTTP/1.1\r\n\r", "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"}) {
    Pieces channel({text});
    EXPECT_EQ(HttpRequestReader(channel, limits).Next()->refusal, 408) << text;
  }
}

TEST(HttpRequestReaderTest, EndlessHeader) {
  const HttpLimits limits;
  Pieces channel({std::string(limits.header_bytes + 1, 'x'), std::string(1 << 20, 'x')});
  EXPECT_EQ(HttpRequestReader(channel, limits).Next()->refusal, 431);
}

TEST(HttpRequestReaderTest, Continue) {
  const HttpLimits limits;
  const std::string head = "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
  Pieces waits({head, "x"});
  EXPECT_EQ(HttpRequestReader(waits, limits).Next()->body, "x");
  EXPECT_EQ(waits.written, "HTTP/1.1 100 Continue\r\n\r\n");
  Pieces does_not_wait({head + "x"});
  EXPECT_EQ(HttpRequestReader(does_not_wait, limits).Next()->body, "x");
  EXPECT_EQ(does_not_wait.written, "");
}

}  // namespace
}  // namespace heaptap::service
