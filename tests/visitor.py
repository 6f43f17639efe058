"""A visitor without a browser: a session over the WebSocket, as Streamlit's own client keeps one.

with client(server) as visitor:
    page = visitor.run("lang=en", "probe")
    page.press("probe-run", WidgetState(id=page.widgets["probe.text"], string_value="a prompt"))
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from browser.server import Server
from streamlit.proto.Alert_pb2 import Alert
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

PATIENCE = 120.0  # seconds, for a run of the script


@dataclass
class Client:
    """A session, and what its page holds."""

    socket: ClientConnection
    page: str = ""  # hash of the page's script
    query: str = ""  # of the address
    drawn: dict[tuple[int, ...], Delta] = field(default_factory=dict)
    widgets: dict[str, str] = field(default_factory=dict)  # the end of a widget's id, its key → id

    def send(self, query: str = "", page: str = "", *states: WidgetState) -> None:
        self.query = query or self.query
        message = BackMsg()
        message.rerun_script.query_string = self.query
        message.rerun_script.page_name = page
        if not page:
            message.rerun_script.page_script_hash = self.page
        message.rerun_script.widget_states.widgets.extend(states)
        message.rerun_script.SetInParent()
        self.socket.send(message.SerializeToString())

    def run(self, query: str = "", page: str = "", *states: WidgetState) -> Client:
        """Run the script and read until it has ended, with all the runs that it begins itself."""
        self.send(query, page, *states)
        return self.read()

    def read(self) -> Client:
        """Take all messages up to the end of a run that is not followed by another one."""
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            message = ForwardMsg.FromString(self.socket.recv(timeout=PATIENCE))
            kind = message.WhichOneof("type")
            if kind == "new_session":
                self.drawn.clear()
            elif kind == "navigation":
                self.page = message.navigation.page_script_hash
            elif kind == "page_info_changed":
                self.query = message.page_info_changed.query_string
            elif kind == "delta":
                self._take(message)
            elif kind == "script_finished" and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                return self
        raise TimeoutError

    def _take(self, message: ForwardMsg) -> None:
        element = message.delta.new_element
        self.drawn[tuple(message.metadata.delta_path)] = message.delta
        kind = element.WhichOneof("type")
        inner = getattr(element, kind) if kind else None
        identity = getattr(inner, "id", "")
        if isinstance(identity, str) and identity.startswith("$$ID-"):
            self.widgets[identity.split("-", 2)[2]] = identity

    def shows(self, key: str) -> bool:
        """Whether a widget of this key is drawn."""
        return any(getattr(inner, "id", "") == self.widgets.get(key, key) for inner in self._elements())

    def html(self) -> str:
        """All markup that the page gave of its own making."""
        return "\n".join(inner.body for inner in self._elements("html"))

    def complaints(self) -> list[str]:
        """The sentences in the page's red boxes."""
        return [inner.body for inner in self._elements("alert") if inner.format == Alert.ERROR]

    def _elements(self, *kinds: str) -> Iterator[Any]:
        for delta in self.drawn.values():
            element = delta.new_element
            kind = element.WhichOneof("type")
            if kind and (not kinds or kind in kinds):
                yield getattr(element, kind)

    def press(self, key: str, *states: WidgetState) -> Client:
        """Press a button, with the other widgets' states as a browser sends them."""
        return self.run("", "", *states, WidgetState(id=self.widgets[key], trigger_value=True))

    def text(self) -> str:
        """All that is drawn, as Streamlit's messages print."""
        return "\n".join(str(delta) for delta in self.drawn.values())

    def has(self, title: str) -> bool:
        return any(delta.new_element.heading.body == title for delta in self.drawn.values())

    @property
    def failed(self) -> bool:
        return any(delta.new_element.WhichOneof("type") == "exception" for delta in self.drawn.values())


@contextmanager
def client(server: Server, **headers: str) -> Iterator[Client]:
    address = server.url.replace("http", "ws") + "/_stcore/stream"
    with connect(
        address,
        subprotocols=[Subprotocol("streamlit")],
        additional_headers=headers,
        max_size=None,
        proxy=None,
    ) as socket:
        yield Client(socket)
