// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "userspace/cli/http_answer.h"

namespace heaptap::cli {
namespace {

constexpr size_t kMaxBody = 100;

// Parses the answer in `text` in pieces of every size; all results must be equal.
absl::StatusOr<ReceivedAnswer> Parse(const std::string& text) {
  const auto parse = [&text](size_t size) -> absl::StatusOr<ReceivedAnswer> {
    AnswerParser parser(kMaxBody);
    for (size_t at = 0; at < text.size(); at += size) {
      absl::StatusOr<bool> whole = parser.Add(absl::string_view(text).substr(at, size));
      if (!whole.ok()) return whole.status();
      if (*whole) return std::move(parser).Take();
    }
    if (absl::Status status = parser.End(); !status.ok()) return status;
    return std::move(parser).Take();
  };
  absl::StatusOr<ReceivedAnswer> first = parse(1);
  for (size_t size : {2, 3, 7, 1000000}) {
    const absl::StatusOr<ReceivedAnswer> next = parse(size);
    EXPECT_EQ(next.status().code(), first.status().code()) << size << " " << text;
    if (next.ok() && first.ok()) {
      EXPECT_EQ(next->body, first->body) << size;
    }
  }
  return first;
}

TEST(ReceivedAnswer, WithALength) {
  const absl::StatusOr<ReceivedAnswer> answer =
      Parse("HTTP/1.1 404 Not Found\r\nA: b\r\ncontent-LENGTH:  5 \r\n\r\nhello");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->body, "hello");
}

TEST(ReceivedAnswer, UntilTheEnd) {
  const absl::StatusOr<ReceivedAnswer> answer = Parse("HTTP/1.0 200 OK\r\n\r\nhello");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "hello");
}

TEST(ReceivedAnswer, InChunks) {
  const absl::StatusOr<ReceivedAnswer> answer = Parse(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n \r\nA\r\n0123456789\r\n0\r\n\r\n");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "hello 0123456789");
}

TEST(ReceivedAnswer, EmptyBody) {
  const absl::StatusOr<ReceivedAnswer> answer = Parse("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "");
}

TEST(ReceivedAnswer, CutOff) {
  for (const char* text : {"", "HTTP/1.1 200 OK", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe"}) {
    EXPECT_TRUE(absl::IsDataLoss(Parse(text).status())) << text;
  }
}

TEST(ReceivedAnswer, NoHttp) {
  for (const char* text :
       {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 OK\r\n\r\n", "HTTP/1.1 999 OK\r\n\r\n",
        "HTTP/1.1 -20 OK\r\n\r\n", "HTTP/1.1 \r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
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

TEST(ReceivedAnswer, TooLong) {
  const std::string body(kMaxBody + 1, 'x');
  for (const std::string& text :
       {absl::StrCat("HTTP/1.1 200 OK\r\n\r\n", body),
        absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"),
        absl::StrCat("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n32\r\n", body.substr(0, 50),
                     "\r\n33\r\n")}) {
    EXPECT_TRUE(absl::IsResourceExhausted(Parse(text).status())) << text;
  }
  const absl::StatusOr<ReceivedAnswer> just = Parse(absl::StrCat("HTTP/1.1 200 OK\r\n\r\n", body.substr(1)));
  EXPECT_TRUE(just.ok()) << just.status();
}

TEST(ReceivedAnswer, AHeadWithoutEnd) {
  AnswerParser parser(kMaxBody);
  const std::string line = "X: y\r\n";
  ASSERT_TRUE(parser.Add("HTTP/1.1 200 OK\r\n").ok());
  size_t taken = 0;
  while (parser.Add(line).ok()) {
    taken += line.size();
    ASSERT_LE(taken, kMaxHeadBytes);
  }
  AnswerParser without_lines(kMaxBody);
  EXPECT_TRUE(absl::IsDataLoss(without_lines.Add(std::string(kMaxHeadBytes + 1, 'x')).status()));
}

}  // namespace
}  // namespace heaptap::cli
