"""Looks at the controller's page with a real browser: the demo's fabric on live switches, then
fabrics of 32 and 500 switches, at the sizes of a desk and of a phone.

    python3 -m venv PAGE && PAGE/bin/pip install -r scripts/check-page.requirements.txt
    PAGE/bin/python scripts/check-page.py target/release/crux [FOLDER]

It needs Chromium on the path (Debian package chromium). Screenshots go to FOLDER. It prints how long
drawing takes, fails at the first thing that is not there, and at any error in the browser's console.
"""

import contextlib
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

from playwright.sync_api import sync_playwright, expect

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {"desk": (1280, 800), "phone": (390, 844)}
DEMO = ROOT / "topology/fabrics/crux-testbed.toml"
POLICY = '[[job]]\nmatch = "gpt"\nlevel = 0\n'
PATIENCE_MS = 60_000

CLOS = """name = "{name}"
[clos]
pods = {pods}
leaves = {leaves}
spines = {spines}
cores = {cores}
hosts_per_leaf = 4
gpus_per_host = 8
host_gbps = 200.0
uplink_gbps = 400.0
"""
LARGE = {
    "32-switches": {"pods": 4, "leaves": 4, "spines": 2, "cores": 8},
    "500-switches": {"pods": 20, "leaves": 16, "spines": 8, "cores": 20},
}


def jobs(hosts, count, size):
    """Jobs whose hosts are drawn from a seed, all of one size."""
    drawn = random.Random(1)
    free = list(hosts)
    drawn.shuffle(free)
    names = ["gpt", "bert", "resnet", "llama", "dlrm"]
    for number in range(count):
        mine, free = free[:size], free[size:]
        yield {
            "id": names[number] if number < len(names) else f"job-{number}",
            "gpus": {host: 8 for host in mine},
            "flop_per_iteration": drawn.uniform(1, 9) * 1e15,
            "compute_seconds": drawn.uniform(0.2, 1.5),
            "collective": {"kind": "ring_all_reduce", "bytes": drawn.uniform(2, 20) * 1e9},
        }


@contextlib.contextmanager
def running(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


class Stage:
    """A controller of a fabric, in a folder; it can be ended and begun again."""

    def __init__(self, crux, folder, fabric, made):
        self.crux, self.folder = crux, folder
        (folder / "fabric.json").write_text(json.dumps(fabric))
        (folder / "jobs.json").write_text(json.dumps({"jobs": list(made)}))
        self.at = None

    @contextlib.contextmanager
    def controller(self, access="anyone = true"):
        listen = self.at or "127.0.0.1:0"
        text = f'[northbound]\nlisten = "{listen}"\n{access}\n[liveness]\nswitch_silence_ms = 500\n'
        (self.folder / "crux.toml").write_text(text)
        files = [f"{self.folder}/{name}" for name in ("crux.toml", "fabric.json", "jobs.json")]
        command = [self.crux, "controller", "--config", files[0]]
        with running(command + ["--fabric", files[1], "--jobs", files[2]]) as process:
            line = process.stdout.readline()
            while not (found := re.search(r"127\.0\.0\.1:\d+", line)):
                line = process.stdout.readline() or sys.exit("the controller serves nobody")
            self.at = found.group()
            yield


def expanded(crux, text):
    made = pathlib.Path(tempfile.mkdtemp()) / "clos.toml"
    made.write_text(text)
    command = [crux, "fabric", "expand", str(made), "--format", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@contextlib.contextmanager
def switches(crux, fabric):
    """One `crux switch` for each switch of the document, which then has its address."""
    with contextlib.ExitStack() as stack:
        processes = {}
        for switch in fabric["switches"]:
            command = [crux, "switch", "--no-p4", "--device-id", str(switch["device_id"])]
            command += ["--priority-queues", "8", "--grpc-server-addr", "127.0.0.1:0"]
            process = stack.enter_context(running(command))
            address = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline()).group()
            switch["p4runtime"] = address
            processes[switch["name"]] = process
        yield processes


def opened(browser, stage, size, scheme="light"):
    """The page, once it is drawn; everything that goes wrong in it is kept."""
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.wrong = []
    page.on("console", lambda said: page.wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.add_init_script(
        "window.shifts = 0; new PerformanceObserver((list) => { for (const one of list.getEntries())"
        " if (!one.hadRecentInput) window.shifts += one.value; })"
        ".observe({ type: 'layout-shift', buffered: true })"
    )
    page.goto(f"http://{stage.at}/")
    until(page, "Boolean(window.crux?.model.fabric && crux.map.frames.length)")
    expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE_MS)
    steady(page)
    return page


def until(page, what):
    """Waits for an expression to hold. The page's rules forbid playwright's own way, which is eval."""
    for _ in range(PATIENCE_MS // 50):
        if page.evaluate(what):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never: {what}")


def steady(page):
    """Nothing has moved while the page came to be."""
    shifts = page.evaluate("window.shifts")
    assert shifts < 0.02, f"the layout jumps: {shifts}"


def sound(page):
    assert not page.wrong, page.wrong


def measured(page):
    """Milliseconds of a frame while panning at several zooms: median and longest; and to be drawn."""
    return page.evaluate("""async () => {
        const { map, model } = crux;
        const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        map.frames.length = 0;
        for (const zoom of [1, 0.3, 0.1]) {
            map.all(); map.zoom(zoom);
            for (let step = 0; step < 20; step++) { map.move(step < 10 ? 0.05 : -0.05); await frame(); }
        }
        map.all();
        await frame();
        const sorted = [...map.frames].sort((a, b) => a - b);
        const first = performance.getEntriesByName("drawn")[0].startTime;
        return { nodes: model.fabric.nodes.size, cables: model.fabric.cables.length, drawn: first,
            median: sorted[sorted.length >> 1], longest: sorted.at(-1) };
    }""")


def told(page, name):
    found = measured(page)
    print(f"{name}: {found['nodes']} nodes, {found['cables']} cables; drawn {found['drawn']:.0f} ms "
          f"after the page was asked for; a frame takes {found['median']:.1f} ms, "
          f"at most {found['longest']:.1f} ms")


def look_at_demo(page, folder):
    """What a person does with the page, and what they then see."""
    about = page.locator("#about")
    page.locator("tr[data-job=gpt]").hover()
    expect(about).to_contain_text("job gpt")
    page.locator("tr[data-job=gpt]").click()
    page.locator("tr.flow[tabindex]").first.hover()
    expect(about).to_contain_text("leaf")
    page.screenshot(path=folder / "demo-path.png")
    page.locator("tr[data-job=gpt]").focus()
    page.keyboard.press("ArrowDown")
    expect(about).to_contain_text(" of gpt")
    page.locator("#tab-jobs").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#links")).to_be_visible()
    page.locator("#links tr[tabindex]").first.focus()
    expect(about).to_contain_text("Gbit/s")
    page.locator("#levels button").nth(1).click()
    page.screenshot(path=folder / "demo-links.png")
    page.locator("#levels button").nth(0).click()
    page.locator("#tab-switches").click()
    expect(page.locator("#switches")).to_contain_text("primary")
    page.locator("#tab-events").click()
    expect(page.locator("#events")).to_contain_text("job gpt arrived")
    page.screenshot(path=folder / "demo-events.png")
    look_at_policy(page, folder)


def look_at_policy(page, folder):
    page.locator("#tab-policy").click()
    until(page, "document.querySelector('#text').value.includes('fairness')")
    page.locator("#text").fill("fairness = 2")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#preview")).to_contain_text("policy.toml:1: fairness")
    page.locator("#text").fill(POLICY)
    page.locator("#policy button[type=submit]").click()
    expect(page.locator("#preview")).to_contain_text("Entries that would be written")
    expect(page.locator("#preview")).to_contain_text("GPU utilisation")
    page.screenshot(path=folder / "demo-policy.png")
    # The refusal of the first document is an answer, which the browser's console has as well.
    page.wrong = [text for text in page.wrong if "422" not in text]


def check_demo(crux, browser, folder):
    fabric = expanded(crux, DEMO.read_text())
    names = [host["name"] for host in fabric["hosts"]]
    place = pathlib.Path(tempfile.mkdtemp())
    with switches(crux, fabric) as processes:
        stage = Stage(crux, place, fabric, jobs(names, 5, 2))
        with stage.controller():
            for size in SIZES:
                for scheme in ("light", "dark"):
                    page = opened(browser, stage, size, scheme)
                    expect(page.locator("#facts")).to_contain_text("8 of 8 hold", timeout=PATIENCE_MS)
                    page.screenshot(path=folder / f"demo-{size}-{scheme}.png")
                    sound(page)
                    page.close()
            page = opened(browser, stage, "desk")
            look_at_demo(page, folder)
            page.locator("#tab-events").click()
            processes["spine1"].kill()
            expect(page.locator("#events")).to_contain_text("spine1 is down", timeout=PATIENCE_MS)
            until(page, "crux.model.switches.some((one) => one.state === 'down')")
            page.screenshot(path=folder / "demo-failure.png")
            sound(page)
            told(page, "demo")
        expect(page.locator("#live")).to_have_text("the controller is away", timeout=PATIENCE_MS)
        with stage.controller():
            expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE_MS)
        page.close()
    policy_of(browser, stage)


def check_login(crux, browser):
    """A controller without tokens is closed; its page logs in with the token of the machine."""
    place = pathlib.Path(tempfile.mkdtemp())
    fabric = expanded(crux, DEMO.read_text())
    stage = Stage(crux, place, fabric, jobs([host["name"] for host in fabric["hosts"]], 5, 2))
    with stage.controller(access=f'token_file = "{place}/token"'):
        page = browser.new_page()
        page.goto(f"http://{stage.at}/")
        expect(page.locator("#lock")).to_be_visible(timeout=PATIENCE_MS)
        page.locator("#lock input").fill("wrong")
        page.locator("#lock button").click()
        expect(page.locator("#lock output")).to_contain_text("unknown token", timeout=PATIENCE_MS)
        page.locator("#lock input").fill((place / "token").read_text().strip())
        page.locator("#lock button").click()
        expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE_MS)
        until(page, "Boolean(window.crux?.model.fabric)")
        cookies = page.context.cookies()
        assert len(cookies) == 1 and cookies[0]["httpOnly"], cookies
        assert cookies[0]["sameSite"] == "Strict", cookies
        assert page.evaluate("document.cookie") == ""
        page.close()
    print("a browser logs in with the token")


def policy_of(browser, stage):
    """The page may load nothing but itself."""
    with stage.controller():
        with urllib.request.urlopen(f"http://{stage.at}/") as answer:
            rules = answer.headers["content-security-policy"]
    assert "default-src 'none'" in rules and "unsafe" not in rules, rules


def planned(stage):
    """Waits until the jobs are planned for, by listening to the events."""
    with urllib.request.urlopen(f"http://{stage.at}/v1/events", timeout=300) as events:
        while b'"kind":"job_arrived"' not in events.readline():
            pass


def check_large(crux, browser, folder, name):
    fabric = expanded(crux, CLOS.format(name=name, **LARGE[name]))
    for switch in fabric["switches"]:
        # Planned for, and not there to be told.
        del switch["p4runtime"]
    hosts = [host["name"] for host in fabric["hosts"]]
    place = pathlib.Path(tempfile.mkdtemp())
    stage = Stage(crux, place, fabric, jobs(hosts, len(hosts) // 13, 8))
    with stage.controller():
        planned(stage)
        for size in SIZES:
            page = opened(browser, stage, size)
            page.screenshot(path=folder / f"{name}-{size}.png")
            told(page, f"{name}, {size}")
            page.evaluate("crux.map.zoom(0.12, 0.3)")
            page.locator("#jobs tr[data-job]").first.hover()
            until(page, "Boolean(crux.map.shown)")
            page.screenshot(path=folder / f"{name}-{size}-zoomed.png")
            sound(page)
            page.close()


def main():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if len(sys.argv) not in (2, 3) or not chromium:
        raise SystemExit(__doc__)
    crux = str(pathlib.Path(sys.argv[1]).resolve())
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        check_login(crux, browser)
        check_demo(crux, browser, folder)
        for name in LARGE:
            check_large(crux, browser, folder, name)
        browser.close()
    print(f"screenshots are in {folder}")


if __name__ == "__main__":
    main()
