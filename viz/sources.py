"""The works that the texts lean on, and every number that is cited from one: the only place where either stands.

Prose and labels cite by key, in both languages alike; `viz.text` fills the fields in, so nobody passes them:

    RMSNorm was put forward by {cite[zhang2019]}.        a link, "Zhang & Sennrich 2019"
    Reported for Qwen3-8B: {cited[growth_qwen3_8b]} ×    the number, as the app writes numbers

An unknown key is a KeyError, and a test formats every text. A chart takes the numbers themselves: `NUMBERS`,
`published_growth()`. What could not be read in the work itself is `standing="reported"`: the text around it
says so. Neither Streamlit nor torch is imported here, nor `viz.text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Standing = Literal["checked", "reported"]  # read in the work, or taken from what others say of it
_ARXIV: Final = "https://arxiv.org/abs/"


@dataclass(frozen=True, slots=True)
class Source:
    """One cited work."""

    authors: str  # as cited: "Zhang & Sennrich", "Xiong et al.", or what a report is called
    year: int
    title: str
    url: str
    authors_zh: str = ""  # where the Chinese name is another than `authors` with 等 for "et al."

    def label(self, lang: str) -> str:
        """As it is named in a sentence: authors and year.

        >>> SOURCES["xiong2020"].label("en"), SOURCES["xiong2020"].label("zh")
        ('Xiong et al. 2020', 'Xiong 等 2020')
        """
        authors = self.authors
        if lang == "zh":
            authors = self.authors_zh or authors.replace(" et al.", " 等")
        return f"{authors} {self.year}"

    def link(self, lang: str) -> str:
        """The label as a Markdown link to the work.

        >>> SOURCES["zhang2019"].link("en")
        '[Zhang & Sennrich 2019](https://arxiv.org/abs/1910.07467)'
        """
        return f"[{self.label(lang)}]({self.url})"


@dataclass(frozen=True, slots=True)
class CitedNumber:
    """One number that somebody else measured."""

    value: float
    source: str  # a key of SOURCES
    what: str  # the quantity and its unit, and how it was measured
    standing: Standing = "checked"
    digits: int = 3  # significant digits that the source gives
    about: str = ""  # the checkpoint it was measured on, where it was one


def _arxiv(number: str, authors: str, year: int, title: str, authors_zh: str = "") -> Source:
    return Source(authors, year, title, _ARXIV + number, authors_zh)


SOURCES: Final[Mapping[str, Source]] = MappingProxyType(
    {
        # Norms
        "ba2016": _arxiv("1607.06450", "Ba et al.", 2016, "Layer Normalization"),
        "zhang2019": _arxiv("1910.07467", "Zhang & Sennrich", 2019, "Root Mean Square Layer Normalization"),
        "henry2020": _arxiv("2010.04245", "Henry et al.", 2020, "Query-Key Normalization for Transformers"),
        "zhu2025": _arxiv("2503.10622", "Zhu et al.", 2025, "Transformers without Normalization"),
        # Where they stand
        "he2015": _arxiv("1512.03385", "He et al.", 2015, "Deep Residual Learning for Image Recognition"),
        "he2016": _arxiv("1603.05027", "He et al.", 2016, "Identity Mappings in Deep Residual Networks"),
        "vaswani2017": _arxiv("1706.03762", "Vaswani et al.", 2017, "Attention Is All You Need"),
        "wang2019": _arxiv(
            "1906.01787", "Wang et al.", 2019, "Learning Deep Transformer Models for Machine Translation"
        ),
        "xiong2020": _arxiv(
            "2002.04745", "Xiong et al.", 2020, "On Layer Normalization in the Transformer Architecture"
        ),
        "takase2022": _arxiv(
            "2206.00330",
            "Takase et al.",
            2022,
            "B2T Connection: Serving Stability and Performance in Deep Transformers",
        ),
        "kim2025": _arxiv(
            "2502.02732",
            "Kim et al.",
            2025,
            "Peri-LN: Revisiting Normalization Layer in the Transformer Architecture",
        ),
        "sun2025": _arxiv("2502.05795", "Sun et al.", 2025, "The Curse of Depth in Large Language Models"),
        # What is seen inside trained models
        "zhai2023": _arxiv(
            "2303.06296",
            "Zhai et al.",
            2023,
            "Stabilizing Transformer Training by Preventing Attention Entropy Collapse",
        ),
        "xiao2023": _arxiv(
            "2309.17453", "Xiao et al.", 2023, "Efficient Streaming Language Models with Attention Sinks"
        ),
        "sun2024": _arxiv("2402.17762", "Sun et al.", 2024, "Massive Activations in Large Language Models"),
        "chen2026": _arxiv(
            "2605.15572", "Chen et al.", 2026, "Measuring Maximum Activations in Open Large Language Models"
        ),
        # Models and programs
        "gemma2": _arxiv(
            "2408.00118",
            "Gemma 2 report",
            2024,
            "Gemma 2: Improving Open Language Models at a Practical Size",
            "Gemma 2 技术报告",
        ),
        "qwen2_5": _arxiv(
            "2412.15115", "Qwen2.5 report", 2024, "Qwen2.5 Technical Report", "Qwen2.5 技术报告"
        ),
        "olmo2": _arxiv("2501.00656", "OLMo 2 report", 2025, "2 OLMo 2 Furious", "OLMo 2 技术报告"),
        "qwen3": _arxiv("2505.09388", "Qwen3 report", 2025, "Qwen3 Technical Report", "Qwen3 技术报告"),
        "llamacpp2374": Source(
            "llama.cpp PR 2374",
            2023,
            "make rms_norm_eps a parameter",
            "https://github.com/ggml-org/llama.cpp/pull/2374",
        ),
    }
)

_GROWTH: Final = (
    "RMS over all tokens of 5,000 texts at the last layer's input, divided by that of the embeddings"
)


def _growth(checkpoint: str, factor: float) -> CitedNumber:
    return CitedNumber(factor, "chen2026", _GROWTH, standing="reported", digits=2, about=checkpoint)


NUMBERS: Final[Mapping[str, CitedNumber]] = MappingProxyType(
    {
        "growth_qwen3_5_0_8b": _growth("Qwen3.5-0.8B", 14),
        "growth_qwen3_5_9b": _growth("Qwen3.5-9B", 240),
        "growth_qwen2_5_1_5b": _growth("Qwen2.5-1.5B", 280),
        "growth_qwen2_5_7b": _growth("Qwen2.5-7B", 480),
        "growth_qwen3_8b": _growth("Qwen3-8B", 890),
        "growth_qwen3_1_7b": _growth("Qwen3-1.7B", 2100),
        "time_saved_least": CitedNumber(
            7, "zhang2019", "percent of running time saved, RMSNorm for LayerNorm, whole models", digits=1
        ),
        "time_saved_most": CitedNumber(
            64, "zhang2019", "percent of running time saved, RMSNorm for LayerNorm, whole models", digits=2
        ),
        "llama2_perplexity_eps_1e_6": CitedNumber(
            5.8986,
            "llamacpp2374",
            "perplexity on WikiText-2, q5_K_M, run with eps 1e-6",
            digits=4,
            about="LLaMA-2-7B",
        ),
        "llama2_perplexity_eps_1e_5": CitedNumber(
            5.8283,
            "llamacpp2374",
            "perplexity on WikiText-2, q5_K_M, run with eps 1e-5, as it was trained",
            digits=4,
            about="LLaMA-2-7B",
        ),
        "post_norm_fine_layers": CitedNumber(
            6, "takase2022", "layers up to which post-norm did better than pre-norm", digits=1
        ),
        "post_norm_hard_layers": CitedNumber(
            10, "takase2022", "layers from which training with post-norm is often unstable", digits=2
        ),
        "post_norm_failed_layers": CitedNumber(
            20,
            "wang2019",
            "layers of a plain post-norm encoder that did not train",
            standing="reported",
            digits=2,
        ),
        "massive_activation_factor": CitedNumber(
            100_000, "sun2024", "how many times larger than others the largest activations are, an example"
        ),
    }
)


def published_growth() -> tuple[CitedNumber, ...]:
    """How much the residual grows in other checkpoints, smallest first: `about`, `value`, one statistic."""
    growths = (cited for key, cited in NUMBERS.items() if key.startswith("growth_"))
    return tuple(sorted(growths, key=lambda cited: cited.value))
