#!/usr/bin/env bash
# Installs modelplan into a new environment, unless an interpreter is given; outputs the interpreter to use.
set -euo pipefail
python="${MODELPLAN_PYTHON:-}"
if [[ -z "$python" ]]; then
  python3 -I -m venv "$RUNNER_TEMP/modelplan"
  python="$RUNNER_TEMP/modelplan/bin/python"
  "$python" -I -m pip install --quiet --disable-pip-version-check --constraint "$MODELPLAN_ACTION/constraints.txt" "$MODELPLAN_ACTION"
fi
printf 'python=%s\n' "$python" >> "$GITHUB_OUTPUT"
