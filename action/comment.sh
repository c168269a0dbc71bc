#!/usr/bin/env bash
# Creates or updates the comment of the pull request. A run without permission, e.g. for a fork, has only the summary and the artifact.
set -euo pipefail
[[ "${MODELPLAN_COMMENT:-}" != never ]] || exit 0
result="$("$MODELPLAN_PYTHON" -I -m planner comment --optional "--when=$MODELPLAN_COMMENT" "--id=$MODELPLAN_COMMENT_ID" \
  --review "$MODELPLAN_FOLDER/review.json" -- "$MODELPLAN_FOLDER/review.md")"
if [[ "$result" == 'no comment was posted'* ]]; then
  result="::notice title=Model capacity::${result//%/%25}; a run for a fork, or without pull-requests: write, has only the summary"
fi
printf '%s\n' "$result"
