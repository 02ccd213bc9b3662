// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/http/url.h"

namespace heaptap::http {
namespace {

using ::testing::HasSubstr;

TEST(Url, Parts) {
  const auto expect = [](const std::string& word, const Url& url) {
    const absl::StatusOr<Url> parsed = ParseUrl(word);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, url) << word << " " << parsed->host << " " << parsed->port << " " << parsed->target;
  };
  expect("http://host", {.host = "host", .port = "80", .target = "/", .authority = "host"});
  expect("HTTP://host:8078/", {.host = "host", .port = "8078", .target = "/", .authority = "host:8078"});
  expect("http://10.0.0.1:1/pid/7/heap?format=pprof&x=a@b#top",
         {.host = "10.0.0.1", .port = "1", .target = "/pid/7/heap?format=pprof&x=a@b", .authority = "10.0.0.1:1"});
  expect("http://[::1]:65535/a", {.host = "::1", .port = "65535", .target = "/a", .authority = "[::1]:65535"});
  expect("http://[fe80::1]?q=1", {.host = "fe80::1", .port = "80", .target = "/?q=1", .authority = "[fe80::1]"});
  expect("http://host/a://b", {.host = "host", .port = "80", .target = "/a://b", .authority = "host"});
}

TEST(Url, Mistakes) {
  for (const std::string word : {"http://",
                                 "http:///heap",
                                 "http://:80/",
                                 "http://host:/",
                                 "http://host:0/",
                                 "http://host:65536/",
                                 "http://host:+80/",
                                 "http://host:8a/",
                                 "http://host:80:80/",
                                 "http://[::1/",
                                 "http://[::1]x/",
                                 "http://[]/",
                                 "http://ho st/",
                                 "http://host/a b",
                                 "http://host/\r\nX: y",
                                 "http://host/\xc3\xa4",
                                 "ftp://host/",
                                 "://host/",
                                 "file:///etc/passwd",
                                 "unix://socket",
                                 "http://host:99999999999999999999/"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseUrl(word).status())) << word;
  }
  EXPECT_THAT(ParseUrl("https://host/").status().message(), HasSubstr("curl -o FILE URL"));
  EXPECT_THAT(ParseUrl("http://host/" + std::string(10000, 'x')).status().message(), HasSubstr("longer than 8000"));
}

// Terminals and logs keep messages.
TEST(Url, PasswordsStayOutOfMessages) {
  for (const std::string word : {"http://me:secret@host/", "https://me:secret@host/", "ftp://me:secret@host/"}) {
    const absl::Status status = ParseUrl(word).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(status.message(), Not(HasSubstr("secret"))) << word;
  }
}

TEST(Url, IsMeant) {
  EXPECT_TRUE(IsUrl("http://host"));
  EXPECT_TRUE(IsUrl("https://host"));
  EXPECT_FALSE(IsUrl("redis-server@now"));
  EXPECT_FALSE(IsUrl("a/b:c"));
}

}  // namespace
}  // namespace heaptap::http
