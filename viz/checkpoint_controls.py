"""Which checkpoint a run uses: what is here and how large, what else could be fetched, and whether memory suffices."""

from __future__ import annotations

from typing import Final

import streamlit as st

from model_probe.memory import free_memory, memory_needed
from viz import measure
from viz.offers import Offer, here, offers
from viz.shell import Page
from viz.text import literal, number

_GB: Final = 1e9
_MORE: Final = "checkpoints-more"  # key of the list of those that could be fetched


def checkpoint_controls(page: Page, *, choose: bool = False) -> None:
    """Draws what a run would use, and the offers to fetch.

    With `choose`, after `measure.checkpoint_choice` was bound: a menu of what is here.
    """
    offered = offers()
    runnable = here(offered)
    if choose and len(runnable) > 1:
        names = {offer.code: offer.name for offer in runnable}
        st.selectbox(
            page.t("checkpoints.choose"),
            tuple(names),
            key=measure.checkpoint_choice().key,
            format_func=names.__getitem__,
            on_change=measure.forget_failure,
        )
    offer = measure.chosen()
    if offer is None:
        _nothing_here(page)
    else:
        st.caption(_said_of(page, offer))
    missing = [o for o in offered if not o.is_here and (offer is not None or o.name != _recorded())]
    if missing:
        with st.popover(page.t("checkpoints.more"), width="stretch", key=_MORE, on_change="rerun"):
            for other in missing:
                _fetchable(page, other)


def _recorded() -> str:
    return measure.recorded_checkpoint().name


def _said_of(page: Page, offer: Offer) -> str:
    """What a run of it takes on this machine."""
    parts = [page.t("checkpoints.here", name=literal(offer.name))]
    if offer.local is not None:
        parts.append(page.t("checkpoints.on_disk", size=_size(page, offer.local.size)))
        parts.append(_memory(page, memory_needed(offer.local)))
    return " ".join(parts)


def _memory(page: Page, needed: int) -> str:
    free = free_memory()
    code = "memory" if needed <= free else "too_little"
    return page.t(f"checkpoints.{code}", needed=number(needed / _GB, 2), free=number(free / _GB, 2))


def _nothing_here(page: Page) -> None:
    wanted = measure.recorded_checkpoint()
    st.caption(
        page.t(
            "checkpoints.nothing_here",
            name=literal(wanted.name),
            download=_size(page, wanted.size),
            seconds=measure.CONVERSION_SECONDS,
            memory=number(measure.CONVERSION_MEMORY_GB, 1),
            disk=number(measure.CONVERSION_DISK_GB, 2),
        )
    )
    _fetch_button(page, wanted.name, wanted.size)


def _fetchable(page: Page, offer: Offer) -> None:
    known = offer.known
    if known is None:
        return
    st.markdown(f"**{literal(known.repository)}**")
    st.caption(
        " ".join(
            (
                page.t(f"checkpoints.about.{known.name.replace('.', '_')}"),
                page.t("checkpoints.to_download", size=_size(page, known.size)),
                _memory(page, memory_needed(known)),
            )
        )
    )
    _fetch_button(page, known.name, known.size)


def _fetch_button(page: Page, name: str, size: int) -> None:
    st.button(
        page.t("checkpoints.fetch", size=_size(page, size)),
        key=f"fetch-{name}",
        width="stretch",
        disabled=measure.job() is not None,
        on_click=_fetch,
        args=(name,),
    )


def _fetch(name: str) -> None:
    st.session_state[_MORE] = False  # it would lie over the progress
    measure.start_fetching(name)


def _size(page: Page, size: int) -> str:
    """Bytes as a reader's unit."""
    if size < _GB:
        return page.t("checkpoints.megabytes", n=round(size / 1e6))
    return page.t("checkpoints.gigabytes", n=number(size / _GB, 2))
