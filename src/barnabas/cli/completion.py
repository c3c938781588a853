"""`barnabas completion`: what a shell has to know to complete words, names of topics and groups included.

All shells ask in the way that bash does, for words only: the descriptions that zsh and fish could show would cost more
time than the rest. What has no words (a file, say) is left to the shell.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from barnabas.cli.options import examples

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command(
    epilog=examples(
        "source <(barnabas completion bash)     # in ~/.bashrc",
        "source <(barnabas completion zsh)      # in ~/.zshrc, after compinit",
        "barnabas completion fish > ~/.config/fish/completions/barnabas.fish",
    )
)
def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish")]) -> None:
    """Print a script that lets a shell complete verbs, options, and the names of topics, groups and contexts."""
    print(_SCRIPTS[shell].strip())


# Bash takes a word apart at colons, so that the words are counted here and not by it.
_BASH = r"""
_barnabas() {
    local line="${COMP_LINE:0:COMP_POINT}" words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local IFS=$'\n'
    COMPREPLY=($(COMP_WORDS="$line" COMP_CWORD=$((${#words[@]} - 1)) _BARNABAS_COMPLETE=complete_bash "$1" 2>/dev/null))
}
complete -o default -F _barnabas barnabas
"""

_ZSH = r"""
#compdef barnabas
_barnabas() {
    local -a found
    found=(${(f)"$(COMP_WORDS="${(j: :)words[1,CURRENT]}" COMP_CWORD=$((CURRENT - 1)) \
        _BARNABAS_COMPLETE=complete_bash "${words[1]}" 2>/dev/null)"})
    if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _barnabas barnabas
"""

_FISH = r"""
function __barnabas_words
    set -l before (commandline --tokenize --cut-at-cursor --current-process)
    set -l word (commandline --current-token --cut-at-cursor)
    COMP_WORDS="$before $word" COMP_CWORD=(count $before) _BARNABAS_COMPLETE=complete_bash $before[1] 2>/dev/null
end
complete --command barnabas --no-files --arguments '(__barnabas_words)'
complete --command barnabas --force-files --condition 'not __barnabas_words | string length --quiet'
"""

_SCRIPTS = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}
