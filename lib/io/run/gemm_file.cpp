#include "io/run/gemm_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "io/files/sha256.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"

namespace lyceum {

namespace {

using Json = nlohmann::json;

constexpr const char* format = "lyceum-gemm-choices";
constexpr int version = 1;

DType type_named(const std::string& name) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
    if (name == name_of(type)) return type;
  }
  fail(ExitCode::bad_input, "{} is not a type of numbers", name);
}

Json choice_json(const std::string& device, const GemmShape& s, const GemmAlgorithm& algorithm) {
  Json json{{"device", device},
            {"sizes", {s.m, s.n, s.k}},
            {"strides", {s.a_stride, s.b_stride, s.c_stride}},
            {"transpose", {s.transpose_a, s.transpose_b}},
            {"accumulate", s.accumulate},
            {"types", {name_of(s.in), name_of(s.out)}},
            {"alignments", {s.a_alignment, s.b_alignment, s.c_alignment}},
            {"proposal", algorithm.proposal},
            {"algorithm", algorithm.bits}};
  if (s.batch > 1) json["batch"] = s.batch;
  if (s.separate) json["separate"] = true;
  return json;
}

GemmShape gemm_shape(const Json& json) {
  const auto &sizes = json.at("sizes"), &strides = json.at("strides"), &transpose = json.at("transpose"),
             &types = json.at("types"), &alignments = json.at("alignments");
  return {.m = Exact(sizes.at(0)),
          .n = Exact(sizes.at(1)),
          .k = Exact(sizes.at(2)),
          .a_stride = Exact(strides.at(0)),
          .b_stride = Exact(strides.at(1)),
          .c_stride = Exact(strides.at(2)),
          .transpose_a = transpose.at(0),
          .transpose_b = transpose.at(1),
          .accumulate = json.at("accumulate"),
          .in = type_named(types.at(0)),
          .out = type_named(types.at(1)),
          .a_alignment = Exact(alignments.at(0)),
          .b_alignment = Exact(alignments.at(1)),
          .c_alignment = Exact(alignments.at(2)),
          .batch = json.contains("batch") ? Exact(json.at("batch")) : std::int32_t{1},
          .separate = json.contains("separate") && json.at("separate").get<bool>()};
}

GemmPins pins_of(const Json& file) {
  require_input(file.at("format") == format && file.at("version") == version,
                "it is not a file of chosen GEMM algorithms, version {}", version);
  const Json& choices = file.at("choices");
  require_input(file.at("sha256") == sha256(json_text(choices)),
                "it was changed after it was written (it differs from the SHA-256 at its end)");
  GemmPins pins;
  for (const Json& json : choices) {
    pins[json.at("device")][gemm_shape(json)] = {.bits = Exact(json.at("algorithm")),
                                                 .proposal = Exact(json.at("proposal"))};
  }
  return pins;
}

}  // namespace

std::string choices_text(const GemmPins& pins) {
  std::size_t all = 0, others = 0;
  for (const auto& [device, choices] : pins) {
    all += choices.size();
    for (const auto& [shape, algorithm] : choices) others += algorithm.proposal != 0;
  }
  return fmt::format("{} algorithms chosen by timing, {} of them not cuBLASLt's first proposal", all, others);
}

std::string gemm_file_text(const GemmPins& pins) {
  Json choices = Json::array();
  for (const auto& [device, chosen] : pins) {
    for (const auto& [shape, algorithm] : chosen) choices.push_back(choice_json(device, shape, algorithm));
  }
  std::string text = fmt::format("{{\"format\": \"{}\", \"version\": {}, \"choices\": [", format, version);
  const char* before = "\n";
  for (const Json& choice : choices) {
    text += before;
    text += json_text(choice);
    before = ",\n";
  }
  text += fmt::format("\n], \"sha256\": \"{}\"}}\n", sha256(json_text(choices)));
  return text;
}

GemmPins parse_gemm_file(const std::string& text, const std::string& file) {
  std::string reason;
  try {
    require_shallow(text);
    return pins_of(parse_json<Json>(text));
  } catch (const Json::exception& error) {
    reason = error.what();
  } catch (const Error& error) {
    reason = error.what();
  }
  fail(ExitCode::bad_input, "{}: {}: remove it, and run.gemm_file if that names it, to choose GEMM algorithms again",
       file, reason);
}

GemmPins read_gemm_file(const std::filesystem::path& path) {
  return parse_gemm_file(read_whole_file(path), path.string());
}

}  // namespace lyceum
