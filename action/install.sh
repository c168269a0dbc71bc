#!/usr/bin/env bash
# Makes a new environment for modelplan, unless an interpreter is given; outputs the interpreter to use.
# Dependencies are wheels with known hashes. The package itself is used from the action's folder, so nothing is built.
set -euo pipefail
python="${MODELPLAN_PYTHON:-}"
if [[ -z "$python" ]]; then
  python3 -I -m venv "$RUNNER_TEMP/modelplan"
  python="$RUNNER_TEMP/modelplan/bin/python"
  "$python" -I -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
    --requirement "$MODELPLAN_ACTION/action/requirements.txt"
  "$python" -I -c 'import sys, sysconfig; open(sysconfig.get_path("purelib") + "/modelplan.pth", "w").write(sys.argv[1])' "$MODELPLAN_ACTION"
fi
printf 'python=%s\n' "$python" >> "$GITHUB_OUTPUT"
