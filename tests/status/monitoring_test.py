"""What packaging/monitoring and docs/runbook.md say, held against a daemon, and its metrics, as Prometheus reads them:
monitoring_test.py SOURCE_DIR BUILD_DIR

promtool and prometheus are of Debian's package prometheus; what needs them is skipped without them.
"""
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from daemon import SKIPPED, Daemon

DEADLINE_S = 60
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def page(url, accept="*/*"):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def until(what, holds):
    deadline = time.monotonic() + DEADLINE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.05)
    return found


def are_told_of(source, families):
    """Rules and dashboard ask for metrics that there are, and each alert has its section of the runbook."""
    rules = open(f"{source}/packaging/monitoring/dlaunchd.rules.yaml").read()
    dashboard = open(f"{source}/packaging/monitoring/dlaunchd.dashboard.json").read()
    json.loads(dashboard)
    names = set(re.findall(r"\b(?:dlaunch|process)_[a-z_]+", rules + dashboard))
    unknown = {name for name in names if re.sub(r"_bucket$", "", name) not in families}
    assert len(names) > 20 and not unknown, unknown
    alerts = re.findall(r"- alert: (\w+)", rules)
    sections = re.split(r"^## ", open(f"{source}/docs/runbook.md").read(), flags=re.MULTILINE)[1:]
    assert [section.split("\n")[0] for section in sections] == alerts
    for section in sections:
        assert re.findall(r"^\*\*(.*?)\.\*\*", section, flags=re.MULTILINE) == ["Means", "Look at", "Do"], section
    assert re.findall(r"runbook\.md#(\w+)", rules) == [alert.lower() for alert in alerts]


def are_documented(source, families):
    """Each of our metrics is in the table of docs/dlaunchd.md."""
    document = open(f"{source}/docs/dlaunchd.md").read()
    missing = {name for name in families if f"`{name}" not in document and f"`...{name}" not in document}
    assert not missing, missing


def please_promtool(promtool, source, text):
    for what, command, given in (
            ("metrics", ["check", "metrics"], text),
            ("rules", ["check", "rules", f"{source}/packaging/monitoring/dlaunchd.rules.yaml"], None),
            ("alerts", ["test", "rules", f"{source}/tests/status/alerts.yaml"], None)):
        done = subprocess.run([promtool, *command], input=given, capture_output=True, text=True, timeout=DEADLINE_S)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{what}: {said}"
        assert what != "metrics" or said == "", said


def please_prometheus(prometheus, daemon):
    """It asks for OpenMetrics, and its parser takes what comes."""
    with tempfile.TemporaryDirectory(prefix="dlaunch-prometheus-") as folder:
        port = free_port()
        with open(f"{folder}/prometheus.yml", "w") as file:
            file.write("global: {scrape_interval: 1s}\n"
                       "scrape_configs:\n- job_name: dlaunchd\n"
                       f"  static_configs: [{{targets: ['127.0.0.1:{daemon.http}']}}]\n")
        with open(f"{folder}/log", "w") as log:
            server = subprocess.Popen(
                [prometheus, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            def scraped():
                assert server.poll() is None, open(f"{folder}/log").read()
                try:
                    targets = json.loads(page(f"http://127.0.0.1:{port}/api/v1/targets")[1])["data"]["activeTargets"]
                except OSError:
                    return None
                return next((target for target in targets if target["health"] != "unknown"), None)
            target = until("a scrape", scraped)
            assert target["health"] == "up", target["lastError"]
            query = f"http://127.0.0.1:{port}/api/v1/query?query=dlaunch_job_nodes%7Bexported_job%3D%22red%22%7D"
            result = json.loads(page(query)[1])["data"]["result"]
            assert result and result[0]["value"][1] == "3", result
        finally:
            server.kill()
            server.wait()


def metrics_with_state_in_etcd(build, folder):
    """Nothing where there is no etcd."""
    etcd = shutil.which("etcd")
    if not etcd:
        return None
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    member = subprocess.Popen(
        [etcd, "--data-dir", f"{folder}/etcd", "--listen-client-urls", client, "--advertise-client-urls", client,
         "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    daemon = None
    try:
        def healthy():
            try:
                return '"true"' in page(f"{client}/health")[1]
            except OSError:
                return False
        until("a healthy etcd", healthy)
        daemon = Daemon(build, "--state", f"etcd:{client}")
        # Its members are asked for their names from time to time.
        until("etcd's samples", lambda: "\ndlaunch_etcd_member{" in page(daemon.url("/metrics"))[1])
        return page(daemon.url("/metrics"))[1]
    finally:
        if daemon:
            daemon.close()
        member.kill()
        member.wait()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def main(source, build):
    with tempfile.TemporaryDirectory(prefix="dlaunch-monitored-") as folder:
        state = f"sqlite:{folder}/state.db"
        on_disk = subprocess.run([f"{build}/bin/dlaunchd", "--check", "--state", state],
                                 capture_output=True).returncode == 0
        daemon = Daemon(build, *(["--state", state] if on_disk else []))
        try:
            return look_at(source, build, daemon, on_disk, folder)
        finally:
            daemon.close()


def look_at(source, build, daemon, on_disk, folder):
    daemon.crowd("red", 3, 2)
    until("a running job", lambda: 'dlaunch_jobs{state="running"} 1' in page(daemon.url("/metrics"))[1])
    if on_disk:  # The job runs before its last changes are on disk.
        commits = re.compile(r"^dlaunch_state_commit_duration_seconds_count [1-9]", re.MULTILINE)
        until("a commit", lambda: commits.search(page(daemon.url("/metrics"))[1]))
    kind, text = page(daemon.url("/metrics"))
    assert kind == "text/plain; version=0.0.4; charset=utf-8", kind
    assert 'dlaunch_job_heartbeat_age_seconds{job="red"}' in text, text
    families = set(re.findall(r"^# TYPE (\w+)", text, flags=re.MULTILINE))
    are_told_of(source, families)
    are_documented(source, families)
    kind, text_of_open = page(daemon.url("/metrics"), OPENMETRICS)
    assert kind.startswith(OPENMETRICS) and text_of_open.endswith("\n# EOF\n"), kind
    promtool, prometheus = shutil.which("promtool"), shutil.which("prometheus")
    if not promtool or not prometheus:
        print("skipped: there is no promtool, or no prometheus (package prometheus)")
        return SKIPPED
    please_promtool(promtool, source, text)
    if text_of_etcd := metrics_with_state_in_etcd(build, folder):
        please_promtool(promtool, source, text_of_etcd)
    please_prometheus(prometheus, daemon)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
