"""Asks the real Zabbix and the demo's portal whether each knows what the other said. One verb a call; see VERBS at the end.

Passwords and tokens are read from files and standard input, and go out in bodies and headers, never in an argument vector.
"""

import base64
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
API = os.environ["EIRENE_ZABBIX_API"]
HOST = "eirene"
NODES = ("c1", "c2")
#: The double of NVIDIA's library, where the dynamic loader looks for one on a node, and what it answers from (as in tests/cluster/src/driver.rs).
DOUBLE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/examples/libnvml_double.so"
LIBRARY, STATE = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/run/nvml-double.json"
#: Longest wait for what takes a few periods of eirened, and of Zabbix' own.
WAIT_S = 240


class Zabbix:
    """The API as its built-in admin: what is made for the test, and what is looked at."""

    def __init__(self):
        self.version = tuple(int(part) for part in self.ask("apiinfo.version", [], None).split(".")[:2])
        self.session = self.ask("user.login", {"username": "Admin", "password": "zabbix"}, None)

    def ask(self, method, params, session):
        body = {"jsonrpc": "2.0", "method": method, "params": params, "id": 1}
        headers = {"Content-Type": "application/json-rpc"}
        if session and self.version >= (6, 4):
            headers["Authorization"] = f"Bearer {session}"
        elif session:
            body["auth"] = session
        request = urllib.request.Request(API, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            said = json.load(answer)
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']}")
        return said["result"]

    def call(self, method, params):
        return self.ask(method, params, self.session)

    def host(self, name):
        found = self.call("host.get", {"output": ["hostid"], "filter": {"host": [name]}})
        return found[0]["hostid"]

    def items(self, name):
        """Items of a host by their keys."""
        params = {"output": ["itemid", "key_", "lastclock", "lastvalue", "state", "error", "flags", "value_type"], "hostids": [self.host(name)]}
        return {item["key_"]: item for item in self.call("item.get", params)}

    def history(self, item, since):
        params = {"history": int(item["value_type"]), "itemids": [item["itemid"]], "time_from": since, "output": "extend"}
        return sorted(int(value["clock"]) for value in self.call("history.get", params))


class Portal:
    """The portal as an admin or a researcher, by token."""

    def __init__(self, who="admin"):
        demo = json.loads((ROOT / "var/demo.json").read_text())
        account = demo["admin"] if who == "admin" else demo["users"][who]
        self.host = urllib.parse.urlsplit(demo["portal_url"]).netloc
        self.origin, self.account = demo["portal_url"], account
        # Kept between calls, so that the rate limit on log-ins is not what is tested.
        kept = ROOT / f"var/zabbix/token-{who}"
        if kept.exists():
            self.headers = {"Authorization": "Bearer " + kept.read_text()}
            if self.send("GET", "/api/v1/me", headers=self.headers)[0] == 200:
                return
        scopes = ["read", "admin"] if who == "admin" else ["read", "sessions:read", "sessions:write"]
        login = f"{account['username']}:{account['password']}".encode()
        headers = {"Authorization": "Basic " + base64.b64encode(login).decode()}
        wish = {"name": "zabbix", "scopes": scopes, "expires_in_s": 1800}
        status, said, _ = self.send("POST", "/api/v1/tokens", wish, headers)
        assert status == 201, (status, said)
        token = json.loads(said)["token"]
        self.headers = {"Authorization": "Bearer " + token}
        kept.touch(mode=0o600)
        kept.write_text(token)

    def send(self, method, path, body=None, headers=None, form=False):
        connection = http.client.HTTPConnection("127.0.0.1", int(self.host.rsplit(":", 1)[1]), timeout=30)
        headers = {"Host": self.host, **(headers or {})}
        if form:
            body = urllib.parse.urlencode(body)
            headers |= {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.origin}
        elif body is not None:
            body = json.dumps(body)
            headers["Content-Type"] = "application/json"
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer

    def get(self, path):
        status, said, _ = self.send("GET", path, headers=self.headers)
        assert status == 200, (path, status, said)
        return json.loads(said)

    def call(self, method, path, body=None):
        status, said, _ = self.send(method, path, body, self.headers)
        assert status < 300, (path, status, said)
        return json.loads(said) if said else None

    def page(self, path):
        """A page as a browser that has signed in gets it."""
        form = {**self.account, "next": "/"}
        status, _, answer = self.send("POST", "/login", form, form=True)
        assert status == 303, status
        cookie = "; ".join(value.split(";")[0] for value in answer.headers.get_all("Set-Cookie"))
        status, text, _ = self.send("GET", path, headers={"Cookie": cookie, "Accept": "text/html"})
        assert status == 200, (path, status)
        return text


def until(what, look, wait_s=WAIT_S):
    """Waits for a condition; says what it last saw where it does not come."""
    end = time.monotonic() + wait_s
    while True:
        try:
            seen = look()
            if seen is True:
                return
        except (OSError, RuntimeError, AssertionError, KeyError) as error:
            seen = repr(error)
        if time.monotonic() > end:
            sys.exit(f"not within {wait_s} s: {what}; last seen: {seen}")
        time.sleep(1)


def prepare():
    """Imports the template, makes the hosts, and prints a token for eirened. The pre-shared key comes by standard input."""
    psk = sys.stdin.read().strip()
    zabbix = Zabbix()
    both = {"createMissing": True, "updateExisting": True}
    rules = {name: both for name in ("templates", "items", "discoveryRules", "triggers", "valueMaps")}
    rules["groups" if zabbix.version < (6, 2) else "template_groups"] = both
    source = (ROOT / "deploy/zabbix/eirene.yaml").read_text()
    # Twice: an update of the template is an import over it.
    for _ in range(2):
        assert zabbix.call("configuration.import", {"format": "yaml", "rules": rules, "source": source}) is True
    template = zabbix.call("template.get", {"output": ["templateid"], "filter": {"host": ["Eirene"]}})[0]["templateid"]
    group = zabbix.call("hostgroup.create", {"name": "Cluster"})["groupids"][0]
    platform = {
        "host": HOST,
        "groups": [{"groupid": group}],
        "templates": [{"templateid": template}],
        # Plain, with a pre-shared key, with a certificate.
        "tls_accept": 7,
        "tls_psk_identity": "eirene",
        "tls_psk": psk,
    }
    zabbix.call("host.create", platform)
    interface = {"type": 1, "main": 1, "useip": 1, "ip": "127.0.0.1", "dns": "", "port": "10050"}
    c1 = zabbix.call("host.create", {"host": "c1", "groups": [{"groupid": group}], "interfaces": [interface]})["hostids"][0]
    interface = zabbix.call("hostinterface.get", {"output": ["interfaceid"], "hostids": [c1]})[0]["interfaceid"]
    load = {"name": "Load <b>average</b>", "key_": "system.cpu.load[all,avg1]", "hostid": c1, "type": 0, "value_type": 0, "interfaceid": interface, "delay": "5s"}
    zabbix.call("item.create", load)
    trigger = {"description": "Fan <script>alert(1)</script> is loud", "expression": "last(/c1/system.cpu.load[all,avg1])>=0", "priority": 3}
    zabbix.call("trigger.create", trigger)
    # A user of its own who may only read: what eirened needs, and no more.
    role = zabbix.call("role.get", {"output": ["roleid"], "filter": {"name": "User role"}})[0]["roleid"]
    rights = "rights" if zabbix.version < (6, 2) else "hostgroup_rights"
    usergroup = zabbix.call("usergroup.create", {"name": "Portal", rights: [{"id": group, "permission": 2}]})["usrgrpids"][0]
    user = {"username": "eirene", "passwd": os.urandom(12).hex() + "Aa1!", "roleid": role, "usrgrps": [{"usrgrpid": usergroup}]}
    user = zabbix.call("user.create", user)["userids"][0]
    token = zabbix.call("token.create", {"name": "eirene", "userid": user})["tokenids"][0]
    print(zabbix.call("token.generate", [token])[0]["token"])


def items():
    """Every item of the template has a value, and none is of a type that does not fit."""
    zabbix = Zabbix()

    def look():
        found = zabbix.items(HOST)
        of_template = [item for item in found.values() if item["flags"] == "0"]
        without = [item["key_"] for item in of_template if item["lastclock"] == "0"]
        wrong = [(item["key_"], item["error"]) for item in found.values() if item["state"] != "0"]
        return len(of_template) > 10 and not without and not wrong or (without, wrong)

    until("every item of the template has a value", look)


def discovery():
    """Discovery has made items for each node, and they have values."""
    zabbix = Zabbix()

    def look():
        found = zabbix.items(HOST)
        seen = [f"eirene.node.{name}[{node}]" for node in NODES for name in ("available", "cpus.total", "gpus.total", "state")]
        without = [key for key in seen if found.get(key, {}).get("lastclock", "0") == "0"]
        return not without or without

    until("nodes are discovered", look)
    assert zabbix.items(HOST)["eirene.node.cpus.total[c1]"]["lastvalue"] == "8"


def session():
    """A session of ada's is discovered, and what it uses arrives."""
    zabbix, ada = Zabbix(), Portal("ada")
    made = ada.call("POST", "/api/v1/sessions", {"name": "in {$ZABBIX}", "cpus": 1, "memory_mib": 1024, "walltime_min": 15})
    try:
        keys = [f"eirene.session.{name}[{made['id']}]" for name in ("cpu", "memory", "nodes")]

        def look():
            found = zabbix.items(HOST)
            without = [key for key in keys if found.get(key, {}).get("lastclock", "0") == "0"]
            return not without or (without, ada.get(f"/api/v1/sessions/{made['id']}")["state"])

        until("a session is discovered", look)
        assert int(zabbix.items(HOST)[keys[1]]["lastvalue"]) > 1_000_000
    finally:
        ada.call("DELETE", f"/api/v1/sessions/{made['id']}")


def driver_says(lost):
    """All GPUs of c1 compute, or have fallen off."""
    gpu = {"name": "NVIDIA A100", "util": [40, 5], "memory": [80 << 30, 10 << 30], "power": 300_000, "temperature": 60, "ecc": [4, 0], "reasons": 1}
    gpus = [gpu | {"uuid": f"GPU-{number}"} | ({"lost": True} if lost else {}) for number in range(8)]
    put = 'umask 022 && cat > "$0.new" && mv "$0.new" "$0"'
    put = ["docker", "exec", "-i", "--user", "root", "c1", "sh", "-c", put, STATE]
    subprocess.run(put, input=json.dumps({"gpus": gpus}), text=True, check=True)


def gpus():
    """A GPU that a session holds is discovered, its figures arrive, and that it has fallen off is a problem of its node."""
    zabbix, portal, ada = Zabbix(), Portal(), Portal("ada")
    driver_says(lost=False)
    subprocess.run(["docker", "cp", str(DOUBLE), f"c1:{LIBRARY}"], check=True, stdout=subprocess.DEVNULL)
    made = None
    try:
        wish = {"name": "with a GPU", "cpus": 1, "memory_mib": 1024, "walltime_min": 15, "gpus": 1, "gpu_type": "a100"}
        made = ada.call("POST", "/api/v1/sessions", wish)

        def figures():
            found = zabbix.items(HOST)
            up = next((key for key in found if key.startswith("eirene.gpu.up[c1,")), "eirene.gpu.up[c1,?]")
            names = ("up", "util", "memory.used", "memory.total", "power", "temperature", "errors")
            keys = [f"eirene.gpu.{name}{up.removeprefix('eirene.gpu.up')}" for name in names]
            return [found.get(key, {"key_": key, "lastclock": "0"}) for key in keys]

        def look():
            without = [item["key_"] for item in figures() if item["lastclock"] == "0"]
            return not without or (without, ada.get(f"/api/v1/sessions/{made['id']}")["state"])

        until("a GPU is discovered", look)
        up, util, used, total, power, temperature, errors = (float(item["lastvalue"]) for item in figures())
        assert (up, util, power, temperature, errors) == (1, 40, 300, 60, 0), figures()
        assert (used, total) == (10 << 30, 80 << 30), figures()
        driver_says(lost=True)

        def lost():
            seen = in_zabbix(portal, "c1")
            found = [problem for problem in seen["problems"] if "of c1 does not answer" in problem["name"]]
            return bool(found) and found[0]["severity"] == "high" or seen

        until("a GPU that is lost is a problem", lost)
    finally:
        if made:
            ada.call("DELETE", f"/api/v1/sessions/{made['id']}")
        subprocess.run(["docker", "exec", "--user", "root", "c1", "rm", "-f", LIBRARY, STATE], check=True)


def in_zabbix(portal, node):
    return portal.get(f"/api/v1/nodes/{node}/zabbix")


def problems():
    """A node that takes no jobs is a problem there, and is told here; so is one that only the site's own host has."""
    portal = Portal()
    subprocess.run(
        ["docker", "exec", "head", "scontrol", "update", "nodename=c2", "state=drain", "reason=zabbix"], check=True, stdout=subprocess.DEVNULL
    )

    def drained():
        seen = in_zabbix(portal, "c2")
        return any("c2 takes no jobs" in problem["name"] for problem in seen["problems"]) or seen

    until("a drained node is a problem", drained)
    assert in_zabbix(portal, "c2")["host"] is None, "c2 has no host of its own"

    def own():
        seen = in_zabbix(portal, "c1")
        loud = [problem for problem in seen["problems"] if "is loud" in problem["name"]]
        known = seen["host"] == "c1" and bool(loud) and loud[0]["severity"] == "average"
        return known and len(seen["items"]) == 1 and len(seen["items"][0]["points"]) > 2 or seen

    until("the agent's figures and the problem of its host are told", own)
    assert not any("c2" in problem["name"] for problem in in_zabbix(portal, "c1")["problems"]), "another node's"


def page():
    """Both problems are on the nodes' pages, as text."""
    portal = Portal()
    c1, c2 = portal.page("/admin/nodes/c1"), portal.page("/admin/nodes/c2")
    assert "&lt;script&gt;alert(1)" in c1 and "<script>alert(1)" not in c1 and "<b>average" not in c1, c1
    assert re.search(r"<polyline[^>]* points=\"[0-9]", c1), c1
    assert "c2 takes no jobs" in c2 and "c2 takes no jobs" not in c1, c2
    subprocess.run(["docker", "exec", "head", "scontrol", "update", "nodename=c2", "state=resume"], check=True, stdout=subprocess.DEVNULL)


def away():
    """A Zabbix that does not answer is said to be away; the rest of the portal goes on."""
    portal = Portal()
    until("the API says that it is away", lambda: in_zabbix(portal, "c1")["state"] == "away" or in_zabbix(portal, "c1"), 60)
    assert "Zabbix is not reachable" in portal.page("/admin/nodes/c1")

    def told():
        lines = [line for line in portal.get("/api/v1/health")["dependencies"] if line["kind"] == "zabbix"]
        return any(not line["ok"] for line in lines) or lines

    until("the portal's health has a line for it", told, 60)


def arrived(since):
    """Times of values of an item of every round, since then."""
    zabbix = Zabbix()
    return zabbix.history(zabbix.items(HOST)["eirene.slurm.reachable"], since)


def told_afterwards(since):
    """No gap is longer than a period and what eirened waits for an answer, with some room, though it was away meanwhile."""
    since = int(since)

    def look():
        clocks = arrived(since)
        gaps = [after - before for before, after in zip([since, *clocks], clocks)]
        return bool(clocks) and clocks[-1] > since + 60 and max(gaps) <= 30 or clocks

    until("what was measured meanwhile arrives", look)


def arrives(since):
    """Something of after then has arrived."""
    until("values arrive", lambda: bool(arrived(int(since))) or arrived(int(since)), 120)


def does_not_arrive(since):
    """Nothing does, for three periods."""
    time.sleep(35)
    # A value of before the restart may have the same second.
    late = [clock for clock in arrived(int(since)) if clock > int(since) + 2]
    assert not late, late


def version():
    """Which it is."""
    print(".".join(str(part) for part in Zabbix().version))


VERBS = {
    "prepare": prepare,
    "items": items,
    "discovery": discovery,
    "session": session,
    "gpus": gpus,
    "problems": problems,
    "page": page,
    "away": away,
    "told-afterwards": told_afterwards,
    "arrives": arrives,
    "does-not-arrive": does_not_arrive,
    "version": version,
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
