"""The glossary page in both languages: every term, its meaning, and a link that leads to a page."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest
from term_html import NOTE

from viz.book import open_pages
from viz.glossary import GROUPS, TERMS, english_name
from viz.text import LANGUAGES, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
NOT_WORDS = re.compile(r"\$[^$]*\$|```.*?```|`[^`]*`|\]\([^)]*\)|<[^>]*>", re.DOTALL)
# How the prose names the terms.
CALLED = {
    "rms_norm": (r"(?<!\w)RMSNorm\b", r"(?<!\w)RMSNorm"),
    "layer_norm": (r"\bLayerNorm\b", r"LayerNorm"),
    "rms": (r"\bRMS\b|root mean square", r"(?<!\w)RMS(?!Norm)|均方根(?!归)"),
    "l2_norm": (r"\bL2\b", r"L2"),
    "variance": (r"standard deviation|\bvariance", r"标准差|方差"),
    "epsilon": (r"ε", r"ε"),
    "learned_gain": (r"\bgains?\b|γ", r"增益|γ"),
    "scale_invariance": (r"scale.invarian", r"尺度不变性"),
    "upcast": (r"\bupcast", r"升精度"),
    "token": (r"\b[Tt]okens?\b", r"词元"),
    "hidden_size": (r"hidden size", r"隐藏维度"),
    "residual_stream": (r"\bresiduals?\b", r"残差"),
    "pre_norm": (r"[Pp]re-norm", r"前置归一化|pre-norm"),
    "post_norm": (r"[Pp]ost-norm", r"后置归一化|post-norm"),
    "identity_path": (r"identity path", r"恒等通路"),
    "final_norm": (r"final norm", r"最终归一化"),
    "qk_norm": (r"QK-norm", r"QK"),
    "logits": (r"\blogits?\b", r"logits?"),
    "entropy": (r"(?<!cross-)\bentropy", r"(?<!交叉)熵"),
    "softmax_saturation": (r"saturat(ed|ion)", r"饱和"),
    "perplexity": (r"perplexity", r"困惑度"),
    "kl_divergence": (r"\bKL\b", r"KL"),
    "attention_sink": (r"\bsinks?\b", r"汇聚词元"),
    "feature": (r"\bfeatures?\b", r"特征"),
    "embedding": (r"\bembeddings?\b", r"嵌入"),
    "attention": (r"\b[Aa]ttention\b(?! sink)", r"注意力(?!汇聚)"),
    "query_key": (r"\b(query|queries|keys?)\b", r"query|key"),
    "mlp": (r"\bMLPs?\b", r"MLP"),
    "lm_head": (r"LM head", r"LM head|输出头"),
    "weights": (r"\bweights?\b", r"权重"),
    "gradient": (r"\bgradients?\b|\bloss\b", r"梯度|损失"),
    "massive_activation": (r"massive activation", r"巨量激活"),
}
LINK = re.compile(r"\[([^\[\]]+)\]\(([^()\s]+)\)")


def opened(lang: str, stem: str = "glossary") -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.query_params["lang"] = lang
    app.switch_page(f"pages/{stem}.py").run()
    assert not app.exception
    return app


@LANGUAGE
def test_every_term_is_there_under_its_name(lang: str) -> None:
    app, text = opened(lang), words(lang)
    assert [header.value for header in app.header] == [text.t(f"glossary.group.{name}") for name in GROUPS]
    names = [text.t(f"glossary.name.{term.key}") for term in TERMS]
    assert [heading.value for heading in app.subheader] == names
    assert [heading.proto.anchor for heading in app.subheader] == [term.key for term in TERMS]
    captions = [caption.value for caption in app.caption]
    for term in TERMS:
        english = english_name(term.key, text)
        assert not english or english in captions


@LANGUAGE
def test_every_term_leads_to_a_page_in_the_language(lang: str) -> None:
    app, text = opened(lang), words(lang)
    existing = {page.stem for page in open_pages()}
    entries = [markdown.value for markdown in app.markdown if "→\u00a0" in markdown.value]
    for term, entry in zip(TERMS, entries, strict=True):
        title = text.t(f"common.page.{term.page}")
        links = {shown: address for shown, address in LINK.findall(entry) if shown.startswith("→")}
        if term.page not in existing:
            assert not links
            continue
        address = urlsplit(links[f"→\u00a0{title}"])
        assert address.path == {"start": "./"}.get(term.page, term.page)
        assert parse_qs(address.query) == {"lang": [lang], **{k: [v] for k, v in term.choices.items()}}


def prose(lang: str, stem: str) -> str:
    """All that a page has drawn as prose once its predictions are answered."""
    app = opened(lang, stem)
    for key in [button.key for button in app.button if (button.key or "").endswith(".show")]:
        app.button(key=key).click().run()
    assert not app.exception
    return "\n".join(markdown.value for markdown in app.markdown if markdown.proto.allow_html)


@pytest.mark.parametrize("stem", [page.stem for page in open_pages() if page.stem != "glossary"])
@LANGUAGE
def test_a_page_explains_each_term_once_where_it_first_names_it(lang: str, stem: str) -> None:
    drawn = prose(lang, stem)
    notes = re.findall(r'popover id="term-([^"]+)"', drawn)
    assert len(notes) == len(set(notes))
    assert re.findall(r'popovertarget="term-([^"]+)"', drawn) == notes
    assert not re.search(r"\]\((term|page):", drawn)
    sentences = NOTE.sub("", drawn)
    assert "popover id" not in sentences
    for key, names in CALLED.items():
        before = re.split(f'<button[^>]* popovertarget="term-{key}"', sentences)[0]
        words_before = NOT_WORDS.sub(" ", before)
        named = re.search(names[lang == "zh"], words_before)
        assert named is None, f"{key}: …{words_before[max(0, named.start() - 30) : named.end() + 30]}…"


def test_the_names_of_every_term_are_looked_for() -> None:
    assert set(CALLED) == {term.key for term in TERMS}


@LANGUAGE
def test_the_formula_page_explains_its_terms(lang: str) -> None:
    drawn = "\n".join(markdown.value for markdown in opened(lang, "formula").markdown)
    explained = set(re.findall(r'popover id="term-([^"]+)"', drawn))
    assert explained == {
        "token", "feature", "rms", "rms_norm", "learned_gain", "epsilon", "l2_norm", "hidden_size", "layer_norm",
        "variance", "upcast",
    }  # fmt: skip
