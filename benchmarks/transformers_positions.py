"""Rotary positions of published models and of edge cases, as transformers computes them. compare_transformers.py
--write-changes writes them to tests/end_to_end/hf/positions.json, which tests/convert/hugging_face/positions_test.cpp reads.
"""
import json
from pathlib import Path

from transformers.models.glm4_moe.configuration_glm4_moe import Glm4MoeConfig
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeRotaryEmbedding
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

CLASSES = {"llama": (LlamaConfig, LlamaRotaryEmbedding), "glm4_moe": (Glm4MoeConfig, Glm4MoeRotaryEmbedding)}

LENGTH = "original_max_position_embeddings"
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, LENGTH: 8192}
YARN = {"rope_type": "yarn", LENGTH: 4096}


def case(head_dim: int, longest: int, kind: str = "llama", **keys) -> tuple:
    return kind, {"head_dim": head_dim, "max_position_embeddings": longest} | keys


CASES = [
    case(128, 4096, rope_theta=10000.0),
    case(128, 131072, rope_theta=500000.0, rope_scaling=LLAMA3 | {"factor": 8.0}),  # Llama 3.1
    case(64, 131072, rope_theta=500000.0, rope_scaling=LLAMA3 | {"factor": 32.0}),  # Llama 3.2
    case(6, 32, rope_parameters=LLAMA3 | {"factor": 4.0, LENGTH: 16, "rope_theta": 100.0}),
    case(32, 64, rope_parameters=LLAMA3 | {"factor": 1.5, LENGTH: 10000, "low_freq_factor": 0.5, "high_freq_factor": 300.0}),
    case(128, 8192, rope_scaling={"type": "linear", "factor": 2.0}),
    case(80, 8192, rope_parameters={"rope_type": "linear", "factor": 3.7, "rope_theta": 1e6}),
    case(128, 131072, rope_theta=1e6, rope_scaling={"type": "yarn", "factor": 4.0, LENGTH: 32768}),  # Qwen
    case(64, 163840, rope_theta=10000, rope_scaling={"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1,
                                                     "mscale": 1.0, "mscale_all_dim": 1.0, LENGTH: 4096}),  # DeepSeek-V3
    case(64, 163840, rope_theta=10000, rope_scaling={"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1,
                                                     "mscale": 0.707, "mscale_all_dim": 1.0, LENGTH: 4096}),
    case(64, 131072, rope_theta=50000.0, rope_scaling={"type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0,
                                                       "mscale": 1.0, "mscale_all_dim": 1.0, LENGTH: 4096}),  # Kimi K2
    case(64, 131072, rope_theta=150000, rope_scaling={"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                                                      "beta_slow": 1.0, "truncate": False, LENGTH: 4096}),  # gpt-oss
    case(64, 8192, rope_parameters=YARN | {"factor": None}),
    case(64, 8192, rope_parameters=YARN | {"factor": 2.0, "mscale": 0.5}),
    case(64, 8192, rope_parameters=YARN | {"factor": 2.0, "attention_factor": 1.3, "mscale": 0.5, "mscale_all_dim": 0.7}),
    case(64, 8192, rope_parameters=YARN | {"factor": 1.0, "beta_fast": 0, "beta_slow": None}),
    case(64, 8192, rope_parameters=YARN | {"factor": 8.0, "truncate": None, "beta_fast": 2.5, "beta_slow": 2.5}),
    case(16, 32, rope_parameters=YARN | {"factor": 8.0, LENGTH: 4, "rope_theta": 500.0}),  # no bound within the pairs
    case(16, 32, rope_parameters=YARN | {"factor": 8.0, LENGTH: 1 << 30, "rope_theta": 2.0}),
    case(16, 32, rope_parameters=YARN | {"factor": 8.0}, original_max_position_embeddings=64),
    case(128, 131072, "glm4_moe", rope_theta=1000000, partial_rotary_factor=0.5),  # GLM-4.5
    case(128, 4096, "glm4_moe", rope_theta=10000.0),
    case(6, 32, "glm4_moe", rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": 0.5}),  # an odd number
    case(40, 4096, "glm4_moe", rope_scaling=YARN | {"factor": 4.0, LENGTH: 1024}, partial_rotary_factor=0.3),
    case(32, 8192, "glm4_moe", rope_scaling=LLAMA3 | {"factor": 8.0, LENGTH: 64}, partial_rotary_factor=0.29),
    case(32, 8192, "glm4_moe", rope_scaling={"type": "linear", "factor": 8.0}, partial_rotary_factor=1.0),
]  # fmt: skip


def write_positions(folder: Path) -> None:
    """Writes positions.json: changes of the fixtures' config.json without their rope_parameters, and the frequencies and
    attention factors of the changed models."""
    lines = []
    for kind, change in CASES:
        config = json.loads((folder / kind / "config.json").read_text())
        del config["rope_parameters"]
        of_config, of_positions = CLASSES[kind]
        positions = of_positions(of_config(**json.loads(json.dumps(config | change))))
        lines.append(json.dumps({"model_type": kind, "config": change, "attention_factor": positions.attention_scaling,
                                 "frequencies": [float(f) for f in positions.inv_freq]}))  # fmt: skip
    (folder / "positions.json").write_text('{"cases": [\n' + ",\n".join(lines) + "\n]}\n")
