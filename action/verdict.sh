#!/usr/bin/env bash
# Fails the job where the review calls for it.
set -euo pipefail
case "${MODELPLAN_FAIL_ON:-finding}" in
  finding) [[ "$MODELPLAN_FAILED" != true ]] ;;
  change) [[ "$MODELPLAN_FAILED" != true && "$MODELPLAN_CHANGED" == 0 ]] ;;
  never) ;;
  *) echo "::error::fail-on is finding, change or never"; exit 2 ;;
esac
