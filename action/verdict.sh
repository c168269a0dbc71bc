#!/usr/bin/env bash
# Fails the job if fail-on asks for it.
set -euo pipefail
case "${MODELPLAN_FAIL_ON:-finding}" in
  finding) [[ "$MODELPLAN_FAILED" != true ]] ;;
  change) [[ "$MODELPLAN_FAILED" != true && "$MODELPLAN_CHANGED" == 0 && "$MODELPLAN_POLICY_CHANGES" == 0 ]] ;;
  never) ;;
  *) echo "::error::fail-on must be finding, change or never"; exit 2 ;;
esac
