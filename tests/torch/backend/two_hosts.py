"""Two hosts with a network between them, as namespaces on this one: each with a name and an /etc/hosts of its own."""
import os
import shutil
import subprocess


def unavailable():
    """Why none can be made, or None."""
    for program in ("ip", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is missing (packages iproute2 and util-linux)"
    done = subprocess.run(["unshare", "--net", "--uts", "--mount", "ip", "link", "add", "veth0", "type", "veth", "peer",
                           "name", "veth1"], capture_output=True, text=True)
    return done.stderr.strip() or None


class TwoHosts:
    ADDRESSES = ("10.77.0.1", "10.77.0.2")

    def __init__(self, *names):
        self.names = names

    def __enter__(self):
        self.holders = [subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", f"hostname {name}; echo; exec cat"],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE) for name in self.names]
        try:
            for holder in self.holders:
                holder.stdout.readline()
            first, second = (holder.pid for holder in self.holders)
            self._run("ip", "link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns",
                      second)
            for holder, address in zip(self.holders, self.ADDRESSES):
                inside = ("nsenter", f"--net=/proc/{holder.pid}/ns/net", "ip")
                self._run(*inside, "link", "set", "lo", "up")
                self._run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
                self._run(*inside, "link", "set", "eth0", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for holder in self.holders:
            holder.communicate()  # cat ends with its input.

    def on(self, host, command, folder, names):
        """`command` on one of them, whose /etc/hosts has `names`; files for it are made in `folder`."""
        own = {"/etc/hosts": f"127.0.0.1 localhost\n{names}\n", "/etc/nsswitch.conf": "hosts: files\n"}
        mounts = ""
        for system, text in own.items():
            path = os.path.join(folder, f"{host}{system.replace('/', '.')}")
            with open(path, "w") as file:
                file.write(text)
            mounts += f"mount --bind '{path}' {system} && "
        spaces = f"/proc/{self.holders[host].pid}/ns/"
        return ["unshare", "--mount", "sh", "-c", mounts + 'exec "$@"', "sh", "nsenter", f"--net={spaces}net",
                f"--uts={spaces}uts", *map(str, command)]

    @staticmethod
    def _run(*command):
        subprocess.run(list(map(str, command)), check=True)
