"""A headless Chromium that shows a page, as a person would use it: clicks, keys, what is on the page, pictures of it.

It is driven by Chromium's own protocol over a pipe, so that nothing needs to be installed beside it.
"""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
PATIENCE = 60.0  # seconds
KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, " ": 32, "Tab": 9, "Enter": 13}


class Browser:
    """A browser with one page, and no network.

    `messages` are what its console and its scripts have complained about, and `requests` what it has loaded.
    """

    def __init__(self, profile: Path, width: int = 1200, height: int = 900, dark: bool = False):
        assert CHROMIUM
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        # The protocol's pipes are the descriptors 3 and 4: out of their way first.
        theirs = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (theirs_in, theirs_out)]
        os.close(theirs_in)
        os.close(theirs_out)
        words = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--remote-debugging-pipe", f"--user-data-dir={profile}", "--hide-scrollbars", "--disable-extensions",
            "--proxy-server=127.0.0.1:9", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", START, *map(str, theirs), *words],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for descriptor in theirs:
            os.close(descriptor)
        self._numbers, self._buffer, self._session = itertools.count(1), b"", ""
        self.messages: list[str] = []
        self.requests: list[str] = []
        (target,) = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def open(self, file: Path, ready: str = "document.readyState === 'complete'") -> None:
        """Shows a file, and waits until the expression `ready` is true."""
        self.call("Page.navigate", url=file.resolve().as_uri())
        self.wait_for(ready)

    def wait_for(self, expression: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.value(expression):
            assert time.monotonic() < end, f"{expression} never became true; {self.messages}"
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """The value of JavaScript in the page."""
        # Evaluated by the debugger, which the page's policy does not bind.
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def key(self, name: str) -> None:
        """Presses a key."""
        same = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": KEYS[name]}
        text = {" ": " ", "Enter": "\r"}.get(name)
        self.call("Input.dispatchKeyEvent", type="keyDown", **same, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    def picture(self, file: Path, whole: bool = False) -> None:
        """Writes a PNG of what is to be seen, or of the whole page."""
        more: dict[str, Any] = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "scale": 1} | _size(size)}
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))

    def pdf(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], PATIENCE)
            chunk = os.read(self._from, 1 << 20) if ready else b""
            assert chunk, "the browser does not answer"
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.messages.append(str(params["exceptionDetails"].get("exception", {}).get("description")))
        elif event["method"] == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif event["method"] == "Runtime.consoleAPICalled":
            self.messages.append(str(params["args"]))
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])


def _size(size: dict[str, float]) -> dict[str, float]:
    return {"width": size["width"], "height": size["height"]}
