// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "userspace/process/script_name.h"

namespace heaptap::process {
namespace {

// Of a command line with one blank between words.
std::string NameIn(const std::string& executable, const std::string& line) {
  const std::vector<std::string> arguments = absl::StrSplit(line, ' ');
  const std::string& own = arguments[0];
  return ScriptName(executable, own.substr(own.rfind('/') + 1), arguments);
}

TEST(ScriptName, IsTheFirstWordThatIsNoOption) {
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 /srv/shop/worker.py --debug x.py"), "worker.py");
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 -u -OO worker.py"), "worker.py");
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 -- -odd.py"), "-odd.py");
  EXPECT_EQ(NameIn("/usr/bin/node", "node --max-old-space-size=512 server.js"), "server.js");
  EXPECT_EQ(NameIn("/usr/bin/nodejs", "node server.js"), "server.js");
  EXPECT_EQ(NameIn("/usr/bin/perl", "/usr/bin/perl -w /usr/bin/report.pl"), "report.pl");
  EXPECT_EQ(NameIn("/usr/bin/ruby3.1", "ruby -w app.rb"), "app.rb");
  EXPECT_EQ(NameIn("/usr/bin/dash", "/bin/sh -e +x ./run.sh -c"), "run.sh");
  EXPECT_EQ(NameIn("/usr/bin/php8.2", "php artisan queue:work"), "artisan");
  EXPECT_EQ(NameIn("/usr/bin/lua5.4", "lua main.lua"), "main.lua");
  EXPECT_EQ(NameIn("/usr/bin/python3.11 (deleted)", "python3 worker.py"), "worker.py");
}

TEST(ScriptName, IsNotTheArgumentOfAnOption) {
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 -W error -X dev -Xutf8 worker.py"), "worker.py");
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 -uW error worker.py"), "worker.py");
  EXPECT_EQ(NameIn("/usr/bin/node", "node -r ./trace.js --import boot.mjs server.js"), "server.js");
  EXPECT_EQ(NameIn("/usr/bin/ruby3.1", "ruby -I lib -rjson app.rb"), "app.rb");
  EXPECT_EQ(NameIn("/usr/bin/bash", "bash -o pipefail --rcfile x run.sh"), "run.sh");
  EXPECT_EQ(NameIn("/usr/bin/php8.2", "php -d memory_limit=1G -f index.php"), "index.php");
}

TEST(ScriptName, ModulesAndClasses) {
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 -m http.server 8000"), "http.server");
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 -um http.server"), "http.server");
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 -mhttp.server"), "http.server");
  EXPECT_EQ(NameIn("/opt/jdk/bin/java", "java -Xmx1g -cp a.jar:b.jar org.example.Main -x"), "org.example.Main");
  EXPECT_EQ(NameIn("/opt/jdk/bin/java", "java -server -jar /srv/shop.jar"), "shop.jar");
  EXPECT_EQ(NameIn("/opt/jdk/bin/java", "java --module-path mods -m shop/org.example.Main"), "org.example.Main");
}

TEST(ScriptName, NoneForTextsAndSessions) {
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3"), "");
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 -c print(1) x.py"), "");
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 -uc print(1)"), "");
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 - x.py"), "");
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 -m"), "");
  EXPECT_EQ(NameIn("/usr/bin/python3.11", "python3 --"), "");
  EXPECT_EQ(NameIn("/usr/bin/node", "node -e 1 x.js"), "");
  EXPECT_EQ(NameIn("/usr/bin/dash", "sh -ec exit"), "");
  EXPECT_EQ(NameIn("/usr/bin/perl", "perl -ne print x"), "");
  EXPECT_EQ(NameIn("/usr/bin/redis-server", "redis-server /etc/redis.conf"), "");
  EXPECT_EQ(NameIn("", "python3 worker.py"), "");
  EXPECT_EQ(ScriptName("/usr/bin/python3", "python3", {}), "");
}

TEST(ScriptName, HostileCommandLines) {
  EXPECT_EQ(ScriptName("/usr/bin/python3", "python3", {"", "", ""}), "");
  EXPECT_EQ(ScriptName("/usr/bin/python3", "python3", {"python3", "dir/"}), "");
  EXPECT_EQ(ScriptName("/usr/bin/python3", "python3", {"python3", std::string(16000, 'x')}), std::string(247, 'x'));
  EXPECT_EQ(ScriptName("/usr/bin/python3", "python3", {"python3", "\x1b[2J/\xff"}), "\xff");
}

TEST(ScriptName, AProgramThatNamesItselfKeepsItsName) {
  const std::vector<std::string> arguments = {"x", "/srv/customer_worker.py"};
  const auto name = [&](const std::string& executable, const std::string& command) {
    return ScriptName(executable, command, arguments);
  };
  for (const char* command : {"python3", "python3.11", "python", "customer_worker"}) {
    EXPECT_EQ(name("/usr/bin/python3.11", command), "customer_worker.py") << command;
  }
  for (const char* command : {"celery", "customer", "MainThread", ""}) {
    EXPECT_EQ(name("/usr/bin/python3.11", command), "") << command;
  }
  EXPECT_EQ(name("/usr/bin/node", "MainThread"), "customer_worker.py");
  EXPECT_EQ(name("/usr/bin/dash", "sh"), "customer_worker.py");
  EXPECT_TRUE(IsInterpreter("/usr/bin/python3.11"));
  EXPECT_FALSE(IsInterpreter("/usr/bin/pythonic"));
  EXPECT_FALSE(IsInterpreter(""));
}

}  // namespace
}  // namespace heaptap::process
