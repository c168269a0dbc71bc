#!/usr/bin/env bash
# Reviews the specs: writes annotations to the log, the report to the job summary and a folder, and the outputs.
# Python runs isolated (-I): files of the pull request are data, never modules.
set -euo pipefail
folder="$(mktemp -d "$RUNNER_TEMP/modelplan-review.XXXXXX")"
base="${MODELPLAN_BASE:-}"
[[ -n "$base" ]] || base="$("$MODELPLAN_PYTHON" -I -m planner.review.actions base)"

arguments=(--exit-zero --format github)
for format in md json sarif junit; do
  suffix="${format/junit/xml}"
  arguments+=(--output "$format=$folder/review.$suffix")
done
[[ -z "$base" ]] || arguments+=("--base=$base")
[[ -z "${GITHUB_SHA:-}" ]] || arguments+=("--links=${GITHUB_SERVER_URL:-https://github.com}/$GITHUB_REPOSITORY/blob/$GITHUB_SHA")
specs=()
while IFS= read -r line; do
  line="${line%$'\r'}"
  [[ -z "$line" ]] || specs+=("$line")
done <<< "${MODELPLAN_SPECS:-}"

if ! "$MODELPLAN_PYTHON" -I -m planner diff "${arguments[@]}" -- "${specs[@]+"${specs[@]}"}" 2> "$folder/errors"; then
  errors="$(tail -n 1 "$folder/errors")"
  cat "$folder/errors" >&2
  printf '::error title=Model capacity::%s\n' "${errors//%/%25}"
  fence='~~~'
  printf '## Model capacity\n\nNo report was written:\n\n%s\n%s\n%s\n' "$fence" "${errors//$fence/}" "$fence" >> "$GITHUB_STEP_SUMMARY"
  exit 2
fi
cat "$folder/errors" >&2
cat "$folder/review.md" >> "$GITHUB_STEP_SUMMARY"
printf 'folder=%s\n' "$folder" >> "$GITHUB_OUTPUT"
"$MODELPLAN_PYTHON" -I -m planner.review.actions outputs "$folder" >> "$GITHUB_OUTPUT"
