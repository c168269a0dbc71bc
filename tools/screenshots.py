"""Write docs/images/: the page of one spec and of all, at three widths, light and dark. `make screenshots`, after a change of the page.

Needs Chromium, as the tests of the page do.
"""

from __future__ import annotations

import shutil
import sys
from base64 import b64decode
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

from selenium import webdriver  # noqa: E402

import planner  # noqa: E402
from planner.report import page  # noqa: E402
from planner.report.planned import Planned  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SHAPES = {1440: 1100, 1024: 1100, 390: 844}  # height of each width, in pixels
SPECS = {"one": [ROOT / "specs/gpt2-small.yaml"], "all": sorted((ROOT / "specs").glob("*.yaml"))}
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")


def main() -> int:
    """Write the pictures."""
    IMAGES.mkdir(exist_ok=True)
    options = webdriver.ChromeOptions()
    for option in OPTIONS:
        options.add_argument(option)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with TemporaryDirectory() as folder, webdriver.Chrome(options=options, service=service) as browser:
        for name, paths in SPECS.items():
            file = Path(folder) / f"{name}.html"
            specs = map(planner.load, paths)
            file.write_text(page.report([Planned(spec, planner.plans(spec)) for spec in specs]), encoding="utf-8")
            for (width, height), scheme in product(SHAPES.items(), ("light", "dark")):
                metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
                browser.get(file.as_uri())
                taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 45})
                (IMAGES / f"{name}-{width}-{scheme}.webp").write_bytes(b64decode(taken["data"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
