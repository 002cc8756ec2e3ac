# Completion of gpuyard in bash; see `gpuyard completion --help`.
_gpuyard() {
    local line flags found
    COMPREPLY=()
    found="$("$1" __complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)" || return
    flags="${found%%$'\n'*}"
    while IFS=$'\t' read -r line _; do
        [[ -n $line ]] && COMPREPLY+=("$line")
    done < <(tail -n +2 <<<"$found")
    if [[ $flags == *goes-on* ]]; then
        compopt -o nospace
    fi
    if [[ $flags == *files* ]]; then
        compopt -o filenames
        while IFS= read -r line; do
            COMPREPLY+=("$line")
        done < <(compgen -f -- "$2")
    fi
}
complete -F _gpuyard gpuyard
