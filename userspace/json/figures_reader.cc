// SPDX-License-Identifier: Apache-2.0
#include "userspace/json/figures_reader.h"

namespace heaptap::json {

profile::ProcessSummary ReadSummary(const nlohmann::json& object, const std::string& where, std::string& error,
                                    Missing missing) {
  profile::ProcessSummary summary;
  Fields fields(object, where, error, missing);
  fields.TakeFigures<profile::kProcessFigures>(summary);
  fields.CheckPid(summary.pid);
  return summary;
}

profile::EndedProcess ReadEnded(const nlohmann::json& object, const std::string& where, std::string& error,
                                Missing missing) {
  profile::EndedProcess ended;
  ended.summary = ReadSummary(object, where, error, missing);
  Fields(object, where, error, missing).TakeFigures<profile::kEndedFigures>(ended);
  return ended;
}

}  // namespace heaptap::json
