"""A client of its own making against a running server: what it sends over the WebSocket and asks for over HTTP."""

from __future__ import annotations

import http.client
import itertools
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import tiny
from browser.server import ROOT, Server, running_app
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from visitor import client
from websockets.exceptions import ConnectionClosed, InvalidStatus

from viz.probe_controls import MAX_CHARS
from viz.text import words

EN = words("en")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The app on a tiny checkpoint."""
    folder = tiny.build("qwen2", tmp_path_factory.mktemp("tiny") / "qwen2")
    environment = {"RMSNORM_LAB_CHECKPOINT": str(folder), "OMP_NUM_THREADS": "1"}
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with running_app(log, environment) as running:
        yield running


def asked(
    server: Server, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer to exactly this path, which no client library has tidied up."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    try:
        connection.request(
            method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


# over HTTP


def test_no_path_leads_out_of_what_is_served(server: Server) -> None:
    outs = [
        "/etc/passwd",
        "..%2f..%2fetc/passwd",
        "%2e%2e/%2e%2e/app.py",
        "..\\..\\app.py",
        "//host/share",
        "%00",
    ]
    doors = [
        "/",
        "/app/static/",
        "/media/",
        "/component/",
        "/_stcore/bidi-components/",
        "/static/",
        "/_stcore/",
    ]
    own, frame = (ROOT / "app.py").read_bytes(), asked(server, "/")[2]
    for door, out in itertools.product(doors, [*outs, "../" * 12 + "etc/passwd", "../" * 3 + "app.py"]):
        status, _, body = asked(server, door + out)
        assert status in (200, 400, 403, 404), (door, out)
        assert b"root:" not in body
        assert own not in body
        assert status != 200 or body == frame, (door, out)  # the empty page that the app is drawn in
    assert server.log().count("Traceback") == 0


def test_what_is_drawn_by_an_answer_cannot_be_taken_for_something_else(server: Server) -> None:
    status, headers, body = asked(server, "/probe?lang=%3Cscript%3Ealert(1)%3C/script%3E")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert b"alert(1)" not in body  # no address is written into the page
    assert "access-control-allow-origin" not in headers
    for path in ("/_stcore/health", "/_stcore/host-config"):
        _, headers, _ = asked(server, path, Origin="https://elsewhere.example")
        assert headers.get("access-control-allow-origin") not in ("*", "https://elsewhere.example")
    assert re.search(r"_streamlit_xsrf=.*SameSite=Lax", asked(server, "/_stcore/health")[1]["set-cookie"])


def test_the_settings_that_keep_strangers_out_are_on() -> None:
    import tomllib

    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    served = config["server"]
    assert not {"enableXsrfProtection", "enableCORS", "corsAllowedOrigins", "enableStaticServing"} & set(
        served
    )
    assert not {"enableAgentApi", "trustedUserHeaders", "xsrfCookieSameSite"} & set(served)
    assert config["client"]["showErrorDetails"] == "none"
    assert served["maxUploadSize"] <= 32
    assert served["maxWidgetStateSize"] <= 1


def test_nothing_is_uploaded_without_the_token_of_the_page(server: Server) -> None:
    cookie = asked(server, "/_stcore/health")[1]["set-cookie"].split(";")[0]
    token = cookie.partition("=")[2]
    path = "/_stcore/upload_file/no-session/no-file"
    assert asked(server, path, "PUT", b"x")[0] == 403
    assert asked(server, path, "PUT", b"x", Cookie=cookie)[0] == 403
    assert asked(server, path, "PUT", b"x", Cookie=cookie, X_Xsrftoken="2|forged")[0] == 403
    assert asked(server, path, "DELETE", Cookie=cookie)[0] == 403
    # with the token it is the unknown session that is refused
    assert asked(server, path, "PUT", b"x", Cookie=cookie, X_Xsrftoken=token)[0] == 400


def test_no_program_is_let_in_by_the_back_door(server: Server) -> None:
    for path in ("/_stcore/agent/interact", "/_stcore/agent/mcp"):
        status, _, answer = asked(server, path, "POST", b"{}", Content_Type="application/json")
        assert status in (400, 403, 404)
        assert b"does not serve the agent API" in answer


# over the WebSocket


def test_another_site_cannot_open_a_session(server: Server) -> None:
    with pytest.raises(InvalidStatus) as refused, client(server, Origin="https://elsewhere.example"):
        pass
    assert refused.value.response.status_code == 403
    with client(server, Origin=server.url) as visitor:
        assert visitor.run("lang=en").has(EN.t("start.title"))


def test_a_giant_address_opens_the_page(server: Server) -> None:
    with client(server) as visitor:
        for query in (
            "x=" + "a" * 100_000,
            "norm=" + "%E2%80%AE" * 30_000,
            "&".join(f"n{i}=1" for i in range(20_000)),
        ):
            page = visitor.run(f"lang=en&{query}", "probe")
            assert page.has(EN.t("probe.title"))
            assert not page.failed


def test_bytes_that_are_no_text_open_the_page(server: Server) -> None:
    with client(server) as visitor:
        page = visitor.run(
            "lang=en&prompt=%ED%A0%80&norm=%FF%FE&token=%00&lines=%C0%AF&checkpoint=%F5", "probe"
        )
        assert page.has(EN.t("probe.title"))
        assert not page.failed


def test_a_giant_prompt_is_cut_by_the_server(server: Server) -> None:
    with client(server) as visitor:
        visitor.run("lang=en", "probe")
        box = WidgetState(id=visitor.widgets["probe.text"], string_value="a" * 900_000)
        page = visitor.run("lang=en", "", box)
        assert page.has(EN.t("probe.title"))
        assert EN.t("probe.cut_characters", n=MAX_CHARS) in page.text()
        assert "a" * (MAX_CHARS + 1) not in page.text()
        press = WidgetState(id=visitor.widgets["probe-run"], trigger_value=True)
        page = visitor.run("lang=en&prompt=own", "", box, press)
        assert not page.failed
        assert EN.t("probe.cut_characters", n=MAX_CHARS) in page.text()
        assert "a" * (MAX_CHARS + 1) not in page.text()


def test_a_message_beyond_all_ends_the_connection_and_nothing_else(server: Server) -> None:
    with client(server) as visitor:
        visitor.run("lang=en", "probe")
        visitor.send("lang=en", "", WidgetState(id=visitor.widgets["probe.text"], string_value="a" * 10**6))
        with pytest.raises(ConnectionClosed):
            visitor.read()
    for rubbish in (b"\xff" * 1000, b""):
        with client(server) as visitor:
            visitor.socket.send(rubbish)
    with client(server) as visitor:
        assert visitor.run("lang=en").has(EN.t("start.title"))


def test_a_page_or_a_part_that_is_not_there_is_the_first_page(server: Server) -> None:
    for page in ("../../etc/passwd", "probe/../../app", "admin", "\u202e", "x" * 10_000):
        with client(server) as visitor:
            assert not visitor.run("lang=en", page).failed
            assert visitor.has(EN.t("start.title"))


def test_a_browser_that_asks_for_more_than_pages_gets_nothing(server: Server) -> None:
    """To end the server, to load what is edited, to empty the cache of all (what that must not do: test_hostile.py)."""
    with client(server) as visitor:
        visitor.run("lang=en")
        for name in (
            "debug_shutdown_runtime",
            "debug_disconnect_websocket",
            "set_run_on_save",
            "clear_cache",
            "load_git_info",
        ):
            message = BackMsg()
            setattr(message, name, True)
            visitor.socket.send(message.SerializeToString())
        assert visitor.run("lang=en").has(EN.t("start.title"))
    with client(server) as visitor:
        assert visitor.run("lang=en").has(EN.t("start.title"))
    assert "Uncaught app execution" not in server.log()  # in all of these tests
