// moelink-info: who takes part, where, and how bytes can move between them. Alone, under mpirun, torchrun or srun.
#include <algorithm>
#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "moelink/communicator.hpp"
#include "moelink/environment.hpp"
#include "moelink/version.hpp"

namespace {

using moelink::Communicator;
using nlohmann::json;

json describe(const moelink::RankInfo& info) {
  return {{"rank", info.rank},
          {"node", info.node},
          {"host", info.host},
          {"process", info.process_id},
          {"device", info.device.name()},
          {"device_name", info.device_name},
          {"pci", info.pci_bus_id},
          {"uuid", info.uuid}};
}

json describe(const moelink::Topology& topology) {
  json ranks = json::array();
  json links = json::array();
  for (const moelink::RankInfo& from : topology.ranks()) {
    ranks.push_back(describe(from));
    json row = json::array();
    for (const moelink::RankInfo& to : topology.ranks()) {
      row.push_back(moelink::name_of(topology.link(from.rank, to.rank)));
    }
    links.push_back(std::move(row));
  }
  return {{"size", topology.size()}, {"nodes", topology.num_nodes()}, {"ranks", ranks}, {"links", links}};
}

/// Every rank's transports, in rank order; collective.
json gather_transports(const Communicator& comm) {
  json mine = json::array();
  for (const auto& status : moelink::probe_transports()) {
    mine.push_back({{"name", status.name}, {"usable", status.usable}, {"reason", status.reason}});
  }
  const std::string text = mine.dump(-1, ' ', false, json::error_handler_t::replace);
  json all = json::array();
  for (const auto& part : comm.all_gather(std::as_bytes(std::span(text.data(), text.size())))) {
    all.push_back(json::parse(reinterpret_cast<const char*>(part.data()),
                              reinterpret_cast<const char*>(part.data()) + part.size()));
  }
  return all;
}

std::string join(const std::vector<std::size_t>& ranks) {
  std::ostringstream text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text << (i == 0 ? "" : ",") << ranks[i];
  }
  return text.str();
}

/// Ranks that found the same share a line.
std::string format_transports(const json& of_ranks) {
  std::string text = "transport  usable   ranks    found or missing\n";
  for (std::size_t t = 0; t < of_ranks.front().size(); ++t) {
    std::vector<std::pair<json, std::vector<std::size_t>>> groups;
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
      const json& status = of_ranks[rank][t];
      auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == status; });
      if (group == groups.end()) {
        group = groups.emplace(group, status, std::vector<std::size_t>());
      }
      group->second.push_back(rank);
    }
    for (const auto& [status, ranks] : groups) {
      const std::string who = ranks.size() == of_ranks.size() ? "all" : join(ranks);
      std::vector<char> line(2048);
      std::snprintf(line.data(), line.size(), "%-9s  %-7s  %-7s  %s\n", status["name"].get<std::string>().c_str(),
                    status["usable"].get<bool>() ? "yes" : "no", who.c_str(),
                    status["reason"].get<std::string>().c_str());
      text += line.data();
    }
  }
  return text;
}

int show(const Communicator& comm, const std::string& json_file) {
  const json transports = gather_transports(comm);
  if (comm.rank() == 0 && json_file.empty()) {
    const int nodes = comm.topology().num_nodes();
    std::printf("moelink %s: %d rank%s on %d node%s\n\n%s\n%s", MOELINK_VERSION, comm.size(),
                comm.size() == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s", comm.topology().to_string().c_str(),
                format_transports(transports).c_str());
  } else if (comm.rank() == 0) {
    json report = describe(comm.topology());
    report["version"] = MOELINK_VERSION;
    report["transports"] = transports;
    std::FILE* file = json_file == "-" ? stdout : std::fopen(json_file.c_str(), "w");
    if (file == nullptr) {
      throw std::runtime_error("cannot write " + json_file);
    }
    std::fputs((report.dump(2) + "\n").c_str(), file);
    if (file != stdout) {
      std::fclose(file);
    }
  }
  comm.barrier();  // nobody ends before rank 0 has written
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shows ranks, nodes, devices, links and transports, with what is missing and why.");
  app.footer("Environment:\n" + moelink::describe_environment());
  std::string json_file;
  int in_process = 0;
  double deadline_s = 0;
  app.add_option("--json", json_file, "write JSON to this file instead of tables (-: standard output)");
  app.add_option("--ranks", in_process, "that many ranks as threads of this process, instead of the launcher's");
  app.add_option("--deadline", deadline_s, "longest wait for other ranks, in seconds");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kExitUsage = 2;  // as the perf tools
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  try {
    const std::chrono::milliseconds deadline(static_cast<std::int64_t>(deadline_s * 1000));
    if (in_process > 0) {
      const auto ranks = Communicator::in_process(in_process, {.devices = {}, .deadline = deadline});
      moelink::on_every_rank(ranks, [&](const Communicator& comm) { show(comm, json_file); });
      return 0;
    }
    return show(Communicator::from_environment({.device = {}, .deadline = deadline}), json_file);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "moelink-info: %s\n", error.what());
    return 1;
  }
}
