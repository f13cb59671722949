// The demo's nodes from outside, as whoever runs the machines sees them: what of a session is there, and how a node is lost and brought back.
import { execFileSync } from "node:child_process";

import { PATIENCE_MS } from "./demo.mjs";

const NODES = ["c1", "c2"];
const ADA_UID = 2001;
// A process tells whose it is by the environment that SLURM gave it and all that it starts; one that has ended already has none.
const OF_JOB = 'job_of() { cat /proc/$1/environ 2>/dev/null | tr "\\0" "\\n" | sed -n s/^SLURM_JOB_ID=//p; }';

/** Runs a program in a container, as root unless told otherwise, and gives what it printed. */
export function inside(container, command, user = "root") {
  return execFileSync("docker", ["exec", "--user", user, container, ...command], { encoding: "utf8" });
}

const shell = (container, script, ...words) => inside(container, ["sh", "-c", `${OF_JOB}\n${script}`, "sh", ...words]).trim();

/** Waits until `probe` gives something, asking four times a second; what it threw last is told when it does not. */
export async function until(what, probe) {
  const end = Date.now() + PATIENCE_MS;
  let last;
  for (;;) {
    try {
      const found = await probe();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`not within ${PATIENCE_MS / 1000} s: ${what}${last ? ` (${last.message})` : ""}`);
    await new Promise((go) => setTimeout(go, 250));
  }
}

/** Kills the processes of one rank of a job's on a node, whose command line holds `words`; gives how many there were. */
export const killRank = (node, job, rank, words) =>
  Number(
    shell(
      node,
      `killed=0
      for pid in $(pgrep -u ada -f -- "$3"); do
        if [ "$(job_of $pid)" = "$1" ] && tr "\\0" "\\n" < /proc/$pid/environ | grep -qx "RANK=$2"; then kill -KILL $pid; killed=$((killed + 1)); fi
      done
      echo $killed`,
      job,
      rank,
      words,
    ),
  );

/** A node's slurmd ends with everything of a job's, at once, as when the machine does; it is brought back when the test is over. */
export function loseNode(t, node, job) {
  t.after(() => bringBack(node));
  shell(
    node,
    `touch /run/demo/slurmd.down
    kill -KILL "$(cat /run/demo/slurmd.pid)"
    pkill -KILL -f "^slurmstepd: .$1[.]"
    for pid in $(pgrep -u ada); do if [ "$(job_of $pid)" = "$1" ]; then kill -KILL $pid; fi; done; :`,
    job,
  );
}

/** What SLURM says of a node, once for each of its partitions. */
const stateOf = (node) => inside("head", ["sinfo", "--noheader", "--format=%t", `--nodes=${node}`]);

const takesWork = (node) => until(`${node} takes work again`, () => /^(idle|mix|alloc|comp|plnd)-?$/m.test(stateOf(node)));

/** Lets a node's slurmd run again, and waits until the node takes work. */
export async function bringBack(node) {
  inside(node, ["demo-ctl", "slurmd", "start"]);
  await takesWork(node);
}

/** Has a node that was drained take work again, and waits until it does; one that does already is left alone. */
export async function resume(node) {
  // SLURM refuses to resume a node that is in service.
  if (/^(drain|drng)/m.test(stateOf(node))) inside("head", ["scontrol", "update", `nodename=${node}`, "state=resume"]);
  await takesWork(node);
}

/** What each node has mounted, to compare with later. */
export const mounts = () => NODES.map((node) => [node, shell(node, "cut -d ' ' -f 2,3 /proc/mounts | sort")]);

/** Waits until a session of ada's has left no job, step, process, runtime directory, file in memory or mount. Other jobs of hers may go on. */
export async function nothingIsLeft(id, job, mountsBefore) {
  const known = () => ["%A", "%i"].map((what, steps) => inside("head", ["squeue", "--noheader", ...(steps ? ["--steps"] : []), `--format=${what}`]));
  await until("SLURM has ended the job and its steps", () => !new RegExp(`^${job}\\b`, "m").test(known().join("\n")));
  const others = inside("head", ["squeue", "--noheader", "--user=ada", "--states=RUNNING,COMPLETING", "--format=%A"]).split(/\s+/);
  const script = `for pid in $(pgrep -u ada); do
      job=$(job_of $pid)
      case " $2 " in *" $job "*) ;; *) ps -o pid=,ppid=,args= -p $pid;; esac
    done
    ls -d /tmp/eirene-${ADA_UID}/*"$1"* 2>/dev/null
    find /dev/shm -uid ${ADA_UID}`;
  for (const [node, mounted] of mountsBefore) {
    let left;
    await until(`nothing of the session is left on ${node}`, () => (left = shell(node, script, id, others.join(" "))) === "").catch((error) => {
      throw new Error(`${error.message}, but:\n${left}`);
    });
    await until(`what is mounted on ${node} is what was before:\n${mounted}`, () => mounts().find(([name]) => name === node)[1] === mounted);
  }
}
