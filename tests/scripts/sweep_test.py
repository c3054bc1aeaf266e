#!/usr/bin/env python3
"""Tests scripts/sweep.py with a fake `lyceum`, and with a fake Slurm: the runs of a description, their folders and commands,
failures, interruption and continuation, and wrong descriptions."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# Appends its arguments to calls.log. A run fails if its learning rate is 9, and waits for a request to stop if the file "slow"
# exists; `peak` has the largest number of simultaneous runs.
LYCEUM = """#!/bin/bash
case $1 in
  train)
    if [[ $* == *--print-config* ]]; then
      [[ $* != *optim.lrr=* ]] || { echo "lyceum train: no such key optim.lrr" >&2; exit 2; }
      printf '%-30s = %-9s  # command line\n' $(printf '%s\n' "${@:4}" | sed -n 's/^--//; s/=/ /p')
      sed 's/ *$/  # base.ini:1/' "$3"
      printf '%-30s = %-9s  # %s\n' batch.micro "$(cat micro)" derived model.layers 4 default
      exit 0
    fi
    echo "$*" >>calls.log
    for argument; do [[ $argument != --run.dir=* ]] || folder=${argument#*=}; done
    echo '{"step":1,"loss":1}' >>"$folder/metrics.jsonl"
    echo "gpus ${CUDA_VISIBLE_DEVICES:-none}"
    [[ ! -e other ]] || { echo "lyceum train: $folder is the end of a run with another configuration; set another run.dir to train it" >&2; exit 2; }
    [[ ! -e held ]] || { echo "lyceum train: $folder is in use by process 5: set another run.dir, or end that job" >&2; exit 2; }
    [[ $* != *optim.lr=9* ]] || { printf 'lyceum train: the weights exploded:\n  in layer 3\nnot its\n' >&2; exit 4; }
    touch "busy.$$"; ls busy.* | wc -l >>peak; sleep 0.3; rm "busy.$$"
    for ((i = 0; i < 300; ++i)); do
      [[ -e slow ]] || exit 0
      [[ ! -e $LYCEUM_STOP_FILE ]] || exit 75
      [[ -e hard ]] || sleep 0.1
      [[ ! -e hard ]] || exec sleep 60
    done ;;
  compare) echo "$*" >>compares.log; echo "the table" ;;
esac
"""

# Runs the tasks of an array one after the other, each as Slurm does: a copy of the script under another name.
SBATCH = """#!/bin/bash
printf '%s\\n' "$@" "" >>sbatch.log
array='' script=() wrapped=''
while (($#)); do
  case $1 in
    --array=*) array=${1#*=} ;;
    --wrap=*) wrapped=${1#*=} ;;
    -A | --qos) shift ;;
    -*) ;;
    *) script+=("$1") ;;
  esac
  shift
done
if [[ -n $wrapped ]]; then
  [[ ! -e one_job ]] || { echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; }
  env sh -c "$wrapped" >compare.out
  echo "8;cluster"
  exit
fi
printf 'JobId=7\\n   JobState=RUNNING\\n   Command=%s\\n   WorkDir=/x\\n' "${script[*]}" >job
cp "${script[0]}" slurm_script
for range in ${array%%%*}; do
  for part in ${range//,/ }; do
    for task in $(seq "${part%-*}" "${part#*-}"); do
      SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$task SLURM_JOB_NODELIST=n1 \\
        bash slurm_script "${script[@]:1}" >>"task.$task.log" 2>&1
    done
  done
done
echo "7;cluster"
"""

INI = """[sweep]
config = base.ini
dir = out  # the folder
seeds = 1, 2
[set]
run.steps = 5
moe.expert_sizes = 4,8
[grid]
optim.lr = 1e-3, 3e-4
"""


class SweepTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "base.ini").write_text("moe.experts = 8\nparallel.expert = 1\n")
        (self.root / "micro").write_text("8")
        self.program("lyceum", LYCEUM)
        self.environment = {**os.environ, "LYCEUM": str(self.root / "lyceum"), "PATH": f"{self.root}:/usr/bin:/bin"}

    def program(self, name, text):
        file = self.root / name
        file.write_text(text)
        file.chmod(0o755)

    def command(self, *arguments):
        return [sys.executable, str(REPOSITORY / "scripts" / "sweep.py"), *arguments]

    def sweep(self, text, *arguments, code=0, name="sweep.ini"):
        """Runs the script with a description. Returns its output."""
        (self.root / name).write_text(text)
        done = subprocess.run(self.command(name, *arguments), cwd=self.root, env=self.environment, capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def calls(self):
        log = self.root / "calls.log"
        return sorted(log.read_text().splitlines()) if log.exists() else []

    def names(self):
        return sorted(path.name for path in (self.root / "out").iterdir() if path.is_dir())

    def test_every_combination_is_a_run_with_a_readable_folder(self):
        said = self.sweep(INI)
        self.assertEqual(self.names(), ["lr=1e-3,seed=1", "lr=1e-3,seed=2", "lr=3e-4,seed=1", "lr=3e-4,seed=2"])
        self.assertEqual(self.calls()[0], "train --config base.ini --run.steps=5 --moe.expert_sizes=4,8 --optim.lr=1e-3 "
                                          "--run.seed=1 --run.dir=out/lr=1e-3,seed=1")
        self.assertIn("the table", said)
        compared = (self.root / "compares.log").read_text().split()
        self.assertEqual(compared[1:5], [f"out/{name}" for name in self.names()])
        self.assertEqual(compared[5:], ["--html", "out/compare.html", "--title", "out"])

    def test_toml_and_ini_mean_the_same(self):
        ini = """[sweep]
config = base.ini
dir = out
[set]
moe.expert_sizes = 4,8
run.tensorboard = true
[grid]
moe.expert_sizes_of = 1,2|3
[zip]
batch.global = 8, 16
optim.lr = 0.5, 0.25
[zip b]
model.layers = 1, 2
moe.layers = 3, 4
"""
        toml = """[sweep]
config = "base.ini"
dir = "out"
[set]
moe.expert_sizes = [4, 8]
run.tensorboard = true
[grid]
"moe.expert_sizes_of" = [[1, 2], 3]
[[zip]]
batch.global = [8, 16]
optim.lr = [0.5, 0.25]
[[zip]]
model.layers = [1, 2]
moe.layers = [3, 4]
"""
        self.sweep(ini)
        expected = self.calls()
        self.assertEqual(len(expected), 8)
        self.assertIn("out/global=8,lr=0.5,model.layers=1,moe.layers=3,expert_sizes_of=1-2", "".join(expected))
        shutil.rmtree(self.root / "out")
        (self.root / "calls.log").unlink()
        self.sweep(toml, name="sweep.toml")
        self.assertEqual(self.calls(), expected)

    def test_runs_at_the_same_time(self):
        self.sweep(INI, "--jobs", "2", "--gpus", "3,5")
        self.assertEqual(max(map(int, (self.root / "peak").read_text().split())), 2)
        gpus = {(self.root / "out" / name / "train.log").read_text() for name in self.names()}
        self.assertEqual(gpus, {"gpus 3\n", "gpus 5\n"})

    def test_complete_runs_are_skipped_and_changed_ones_continue(self):
        self.sweep(INI)
        self.assertIn("4 of them complete", self.sweep(INI))
        self.assertEqual(len(self.calls()), 4)
        self.sweep(INI.replace("run.steps = 5", "run.steps = 6"))
        self.assertEqual(len(self.calls()), 8)
        self.assertIn("complete     out/lr=1e-3,seed=1", self.sweep(INI.replace("run.steps = 5", "run.steps = 6"), "--list"))

    def test_an_edited_configuration_starts_complete_runs_again(self):
        text = INI.replace("1e-3, 3e-4", "1").replace("seeds = 1, 2", "seeds = 1")
        base = self.root / "base.ini"
        self.sweep(text)
        base.write_text("parallel.expert = 2\nrun.log_every = 1\nmoe.experts   =  8  \n")  # no effect on what is learnt
        (self.root / "micro").write_text("4")
        self.assertIn("1 of them complete", self.sweep(text))
        base.write_text("moe.experts = 16\n")
        (self.root / "other").touch()
        for _ in range(2):  # a refusal does not make it complete
            said = self.sweep(text, code=4)
            self.assertIn("is the end of a run with another configuration; use another dir in [sweep] to train it", said)
            self.assertIn("not compared, complete with other settings: lr=1,seed=1\n", said)
            self.assertIn("changed      out/lr=1,seed=1", self.sweep(text, "--list"))
        base.write_text("moe.experts = 8\n")
        self.assertIn("complete     out/lr=1,seed=1", self.sweep(text, "--list"))
        # Another key whose folders have the same names.
        self.assertIn("changed      out/lr=1,seed=1", self.sweep(text.replace("optim.lr", "balance.lr"), "--list"))
        # Earlier versions recorded the arguments.
        run = next(line for line in self.calls()).split()[2:]
        (self.root / "out/lr=1,seed=1/sweep-status").write_text("\0".join(["0", *run, ""]))
        self.assertIn("complete     out/lr=1,seed=1", self.sweep(text, "--list"))
        self.assertIn("changed      out/lr=1,seed=1", self.sweep(text.replace("run.steps = 5", "run.steps = 6"), "--list"))

    def test_a_configuration_that_is_edited_meanwhile_is_unknown(self):
        text = INI.replace("1e-3, 3e-4", "1")
        self.program("lyceum", LYCEUM.replace('echo "$*" >>calls.log', 'echo "$*" >>calls.log; touch -d 2030-01-01 base.ini'))
        self.sweep(text)
        listed = self.sweep(text, "--list")
        self.assertIn("complete     out/lr=1,seed=1", listed)
        self.assertIn("changed      out/lr=1,seed=2", listed)

    def test_values_that_differ_by_a_sign_have_folders(self):
        self.sweep("\ufeff" + INI.replace("1e-3, 3e-4", "-1, 1, /a b/").replace("seeds = 1, 2", "seeds = 1"))
        self.assertEqual(self.names(), ["lr=-1,seed=1", "lr=1,seed=1", "lr=a-b,seed=1"])

    def test_a_failed_run_is_named_and_others_go_on(self):
        text = INI.replace("1e-3, 3e-4", "9, 1").replace("seeds = 1, 2", "seeds = 1")
        said = self.sweep(text, code=4)
        self.assertIn("lr=9,seed=1: failed with code 4, see out/lr=9,seed=1/train.log: lyceum train: the weights exploded:\n  in layer 3\nsweep: ", said)
        self.assertIn("sweep: failed: lr=9,seed=1\n", said)
        self.assertIn("lr=1,seed=1: complete", said)
        self.assertIn("failed (4)   out/lr=9,seed=1", self.sweep(text, "--list"))
        self.sweep(text, code=4)
        self.assertEqual(len(self.calls()), 3, "the failed run is tried again, the complete one is not")

    def interrupted(self, number, times, closed=False):
        """Starts a sweep of slow runs and sends it a signal as soon as two are running. Returns its exit code and output. With
        `closed`, the output is a pipe that is closed by then."""
        (self.root / "slow").touch()
        (self.root / "sweep.ini").write_text(INI)
        with open(self.root / "said", "w+") as said:
            process = subprocess.Popen(self.command("sweep.ini", "--jobs", "2"), cwd=self.root, env=self.environment,
                                       stdout=subprocess.PIPE if closed else said, stderr=said)
            try:
                for _ in range(600):
                    if len(self.calls()) == 2:
                        break
                    time.sleep(0.05)
                time.sleep(0.6)  # until both wait
                if closed:
                    process.stdout.close()
                for _ in range(times):
                    process.send_signal(number)
                    time.sleep(0.5)
                process.wait(timeout=30)
            finally:
                process.kill()
            said.seek(0)
            return process.returncode, said.read()

    def test_an_interrupt_stops_all_runs_and_the_same_command_continues(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                shutil.rmtree(self.root / "out", ignore_errors=True)
                (self.root / "calls.log").unlink(missing_ok=True)
                code, said = self.interrupted(number, 1)
                self.assertEqual(code, 75, said)
                self.assertEqual(said.count(": stopped, "), 2, said)
                self.assertEqual(len(self.calls()), 2, "no other run is started")
                (self.root / "slow").unlink()
                self.sweep(INI)
                self.assertEqual(len(self.calls()), 6)

    def test_a_closed_pipe_stops_all_runs(self):
        code, said = self.interrupted(signal.SIGHUP, 1, closed=True)
        self.assertEqual((code, said), (4, "sweep.py: output: Broken pipe\n"))
        self.assertEqual(self.sweep(INI, "--list").count("stopped      "), 2)

    def test_a_run_of_another_process_is_still_running(self):
        (self.root / "held").touch()
        text = INI.replace("1e-3, 3e-4", "1").replace("seeds = 1, 2", "seeds = 1")
        said = self.sweep(text, code=75)
        self.assertIn("lr=1,seed=1: still running: lyceum train: out/lr=1,seed=1 is in use by process 5", said)
        self.assertIn("started      out/lr=1,seed=1", self.sweep(text, "--list"))

    def test_a_second_interrupt_ends_the_runs(self):
        (self.root / "hard").touch()
        code, said = self.interrupted(signal.SIGINT, 2)
        self.assertEqual(code, 75, said)
        self.assertEqual(said.count(": stopped, "), 2, said)

    def test_slurm_gets_an_array_and_a_comparison(self):
        self.program("sbatch", SBATCH)
        self.program("scontrol", 'cat job')
        self.program("mpirun", 'exec "$@"')
        text = INI.replace("1e-3, 3e-4", "9, 1")
        (self.root / "env.sh").write_text("[[ -n $BASH_VERSION ]] && echo modules\n")
        self.environment["LYCEUM_ENVIRONMENT"] = "env.sh"
        said = self.sweep(text, "--slurm", "--jobs", "3", "--", "--time=1:00", "--partition=p q", "-A", "team", "--qos", "low", "-Mc")
        self.assertIn("job 7, tasks 1-4%3", said)
        submitted = (self.root / "sbatch.log").read_text().split("\n\n")
        first, second = submitted[0].splitlines(), submitted[1].splitlines()
        self.assertEqual(first[:1] + first[2:5], ["--parsable", "--output=out/slurm-%A_%a.log", "--time=1:00", "--partition=p q"])
        self.assertIn("--dependency=afterany:7", second)
        self.assertEqual(second[-5:-1], ["--account=team", "--partition=p q", "--qos=low", "--clusters=c"])
        self.assertEqual((self.root / "compare.out").read_text(), "modules\nthe table\n")
        self.assertIn("--moe.expert_sizes=4,8 --optim.lr=9 --run.seed=1 --run.dir=out/lr=9,seed=1", "".join(self.calls()))
        listed = self.sweep(text, "--list")
        self.assertIn("complete     out/lr=1,seed=2", listed)
        self.assertIn("failed (4)   out/lr=9,seed=1", listed)
        # Submitted again, only the runs that are not complete. A refusal does not change a complete run, and an edited file is unknown.
        task = (self.root / "out/tasks/4").read_text()
        status = self.root / "out/lr=1,seed=2/sweep-status"
        for code, before, after in ((2, "0\0", "0\0"), (0, "3\0", "0\0\0")):
            status.write_text(before)
            (self.root / "mpirun").write_text(f"exit {code}")
            os.utime(self.root / "base.ini", (2e9, 2e9))
            subprocess.run(["bash", "slurm_script", "out/tasks"], cwd=self.root, capture_output=True, timeout=60, check=False,
                           env={**self.environment, "SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "4", "SLURM_JOB_NODELIST": "n1"})
            self.assertEqual(status.read_text(), after)
        status.write_text("\0".join(["0", task.split("\0")[1], ""]))
        (self.root / "mpirun").write_text('exec "$@"')
        (self.root / "one_job").touch()
        said = self.sweep(text, "--slurm")
        self.assertIn("tasks 1-2;", said)
        self.assertIn("warning: job 7 is submitted, but not the job that compares its runs (sbatch: error: QOSMaxSubmit", said)
        self.assertIn("sweep.ini --compare", said)

    def test_without_slurm_the_reason_is_told(self):
        self.environment["PATH"] = str(self.root)
        self.assertIn("sweep.py: sbatch: No such file or directory", self.sweep(INI, "--slurm", code=2))

    def test_wrong_descriptions_are_refused_before_a_run_starts(self):
        for old, new, message in (
                ("config = base.ini", "config = none.ini", "config = none.ini: no such file"),
                ("config = base.ini\n", "", "[sweep] needs config"),
                ("dir = out", "dir = base.ini/a", "dir = base.ini/a: base.ini is not a folder"),
                ("dir = out", "dir = out\0", "dir has a value with a zero byte"),
                ("[grid]", "[ ]", "[ ]: expected [sweep], [set], [grid] or [zip]"),
                ("dir = out", "dri = out", "dri in [sweep]: did you mean dir?"),
                ("seeds = 1, 2", "seeds = 1,", "run.seed has an empty value"),
                ("seeds = 1, 2", "seeds = 1, 1", "run.seed = 1, 1: a value occurs twice"),
                ("seeds = 1, 2", "ranks = 0", "ranks = 0: must be"),
                ("optim.lr =", "optim.lrr =", "no such key optim.lrr"),
                ("optim.lr =", "lr =", "lr: expected section.key"),
                ("run.steps =", "run.dir =", "run.dir: each run gets"),
                ("run.steps =", "optim.lr =", "optim.lr is given twice"),
                ("[grid]", "[gird]", "[gird]: expected [sweep], [set], [grid] or [zip]"),
                ("[grid]", "[zip]\na.b = 1, 2, 3", "lists of different lengths: a.b has 3, optim.lr has 2"),
                ("optim.lr = 1e-3, 3e-4", "data.train = a/b, a:b", "two runs would have the folder train=a-b"),
                ("[grid]", "[grid", "sweep.ini: Source contains parsing errors"),
                ("seeds = 1, 2", "seeds = 1, 2\nseeds = 3", "sweep.ini:")):
            with self.subTest(new=new):
                self.assertIn(message, self.sweep(INI.replace(old, new), code=2))
        self.assertIn("sweep.toml: ", self.sweep("[sweep", code=2, name="sweep.toml"))
        for text, message in (("a = 1", "a is outside a section"), ("zip = 5", "zip is not a section"), ("zip = ['a']", "zip is not a section"),
                              ("[sweep]\nconfig = []\ndir = 'a'", "[sweep] needs config"), ("[sweep]\nconfig = ['a', 'b']", "[sweep] needs config")):
            self.assertIn(f"sweep.toml: {message}", self.sweep(text, code=2, name="sweep.toml"))
        self.assertIn("none.ini: No such file", self.run_missing())
        self.assertEqual(self.calls(), [])
        self.assertFalse((self.root / "out").exists())

    def run_missing(self):
        done = subprocess.run(self.command("none.ini"), cwd=self.root, env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        return done.stderr

    def test_wrong_options_are_refused(self):
        self.assertIn("--jobs 0", self.sweep(INI, "--jobs", "0", code=2))
        self.assertIn("need 2 different GPUs", self.sweep(INI, "--jobs", "2", "--gpus", "1", code=2))
        self.assertIn("need --slurm", self.sweep(INI, "--", "--time=1", code=2))
        self.program("data", "\x7fELF")
        self.assertIn("data: Exec format error: name a program", self.sweep(INI, "--lyceum", "./data", code=2))
        self.environment["LYCEUM"] = "/none"
        self.assertIn("no program at /none", self.sweep(INI, code=2))


if __name__ == "__main__":
    unittest.main()
