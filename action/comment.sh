#!/usr/bin/env bash
# Creates or updates the comment of the pull request. A run without permission, e.g. for a fork, has only the summary and the artifact.
set -euo pipefail
[[ "${MODELPLAN_COMMENT:-}" != never ]] || exit 0
number="$("$MODELPLAN_PYTHON" -I -m planner.review.actions pull-request)"
[[ -n "$number" ]] || exit 0
if ! command -v gh > /dev/null; then
  echo '::warning title=Model capacity::gh is not installed, so no comment was posted; the report is in the summary'
  exit 0
fi
api="repos/$GITHUB_REPOSITORY/issues"
no_comment='::notice title=Model capacity::no comment was posted: this run has no permission (a fork, or a workflow without pull-requests: write)'
if ! gh api --paginate "$api/$number/comments?per_page=100" > "$MODELPLAN_FOLDER/comments.json"; then
  echo "$no_comment; the report is in the summary"
  exit 0
fi
read -r what detail <<< "$("$MODELPLAN_PYTHON" -I -m planner.review.actions comment "$MODELPLAN_FOLDER")"
case "$what" in
  create) request=(POST "$api/$number/comments") ;;
  update) request=(PATCH "$api/comments/$detail") ;;
  none) echo "No comment: $detail"; exit 0 ;;
  *) exit 2 ;;
esac
gh api --silent --method "${request[0]}" "${request[1]}" --input "$MODELPLAN_FOLDER/body.json" || echo "$no_comment; the report is in the summary"
