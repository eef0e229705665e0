"""Completion in zsh, where Typer's script does nothing at a shell's first Tab."""

from typing import Any

_SCRIPT = """#compdef %(prog_name)s

%(complete_func)s() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" \\
    %(autocomplete_var)s=complete_zsh %(prog_name)s)
}

compdef %(complete_func)s %(prog_name)s
# At the first Tab, zsh reads this file from its fpath, as the function that completes.
if [[ $funcstack[1] == _%(prog_name)s ]]; then %(complete_func)s; fi
"""


def mend_zsh_completion() -> None:
    """Let Typer install and print this script, and keep apostrophes in the help of commands.

    A release of Typer that has its own script elsewhere keeps it.
    """
    try:
        from typer._completion_classes import ZshComplete
        from typer._completion_shared import _completion_scripts
    except ImportError:
        return
    _completion_scripts["zsh"] = ZshComplete.source_template = _SCRIPT
    form = ZshComplete.format_completion

    def with_apostrophes(self: Any, item: Any) -> str:
        # Typer's answer stands between apostrophes, and doubles those inside.
        return form(self, item).replace("''", "'\\''")

    ZshComplete.format_completion = with_apostrophes  # type: ignore[method-assign]
