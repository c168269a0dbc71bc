"""Texts that a terminal, a CI system, GitHub, a browser or a spreadsheet would take for more than text."""

from __future__ import annotations

MARKDOWN = (
    *("a|b", "a\\|b", "`code`", "``` x", "~~~ x", "**bold** _it_ ~~gone~~", "__x__", "# x", "> x", "- x", "1. x", "* x", "***", "---"),
    *("===", "[a](javascript:alert(1))", "![a](https://example.org/a.png)", "](javascript:alert(1))", "<javascript:alert(1)>", "[^1]"),
    *("- [ ] task", "$x$", "$$x$$", "$`x`$", "\\(x\\)", "&lt;b&gt;", "&#60;b", "&amp;"),
)
LINKS = (
    *("https://example.org/x", "x http://example.org", "ftp://example.org/x", "www.example.org", "xWWW.example.org", "a@b.example"),
    *("mailto:a@b.example", "xmpp:a@b.example", "@octocat", "x @org/team x", "#1", "x #123", "GH-1", "gh-123 x", "owner/repo#2", "!1"),
    *("x %2", "~3", "&4", "$5", ":shipit:", "x :+1: :rocket:", "a:100:b", "0123456789abcdef0123456789ABCDEF01234567"),
    *("x/y@ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
)
HTML = (
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</details></table><h1>x", "<!-- x", "<base href=//example.org>"),
    *(
        "<!-- modelplan-review id=default run=999.1 -->",
        "<style>*{color:red}</style>",
        '" onmouseover=alert(1) x="',
        "]]>",
        "<![CDATA[x",
    ),
)
CONTROLS = (
    *("a\x1b[31mb\x1b[0m", "a\x1b]8;;https://example.org\x07b", "a\x07\x08b", "a\x00b", "a\x9bb", "a\u202eb", "a\u200bb", "a\ufeffb"),
    *("a\u00adb", "a\nb", "a\rb", "a\u2028b", "a\u0085b", "a\n::error::b", "a\r\n##[error]b", "a\n| b |", "a\n=1"),
)
COMMANDS = (
    *("::error::x", "  ::warning file=a::x", "::debug::x", "x ##[error]y", "###[debug]x", "x ##vso[task.complete]", "##teamcity[x]"),
    "%0A::error::x",
)
FORMULAS = ("=1+1", "+1", "-1", "@SUM(1)", "=cmd|'/c calc'!A0", '=HYPERLINK("http://x","y")', "\t=1", "a;=1", "＝1", "'=1")
PLAIN = ("gpt2-small", "llama-3.2-1b", "50 %, a, b: c", "a -- b", "模型 🤖 é", "👩‍🔬", "مرحبا", "C:\\x", "{{7*7}}", "a" * 100)

WORDS = (*MARKDOWN, *LINKS, *HTML, *CONTROLS, *COMMANDS, *FORMULAS, *PLAIN)
