#compdef gpuyard
# Completion of gpuyard in zsh; see `gpuyard completion --help`.
_gpuyard() {
    local flags line word about
    local -a found items
    found=("${(@f)$("${words[1]}" __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    flags="${found[1]}"
    for line in "${(@)found[2,-1]}"; do
        [[ -n $line ]] || continue
        word="${line%%$'\t'*}" about="${line#*$'\t'}"
        items+=("${word//:/\\:}${about:+:$about}")
    done
    if (( $#items )); then
        if [[ $flags == *goes-on* ]]; then
            _describe -t names name items -S ''
        else
            _describe -t names name items
        fi
    fi
    [[ $flags == *files* ]] && _files
    return 0
}
if [[ "${funcstack[1]}" == _gpuyard ]]; then
    _gpuyard "$@"
else
    compdef _gpuyard gpuyard
fi
