"""Every command rejects unsupported settings in one line, exits with 2 and writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import cli


@pytest.mark.parametrize("command", ["show", "run", "compare", "fit", "verify"])
def test_unsupported_settings_are_rejected_in_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Flash attention supports heads up to 256 wide (PyTorch 2.13, sdp_utils.cpp: check_flash_attention_head_dim_size).
    spec = tmp_path / "wide.yaml"
    written = (Path(__file__).parents[2] / "specs" / "gpt2-small.yaml").read_text(encoding="utf-8")
    written = written.replace("n_heads: 12", "n_heads: 12\n  head_dim: 320").replace("training:", "training:\n  attention_kernel: flash")
    spec.write_text(written[: written.index("expect:")], encoding="utf-8")
    options = {"run": ["--output", str(tmp_path / "out")], "fit": ["--memory", "80GiB"], "verify": ["--kept"]}
    assert cli.main([command, str(spec), *options.get(command, [])]) == 2
    complaint = capsys.readouterr().err
    assert "the flash attention kernel does not support these inputs; choose one of: math, efficient" in complaint
    assert "Traceback" not in complaint
    assert not (tmp_path / "out").exists()
