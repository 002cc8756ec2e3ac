# Completion of gpuyard in fish; see `gpuyard completion --help`.
function __gpuyard_complete
    set -l tokens (commandline -opc)
    set -l current (commandline -ct)
    set -l found ($tokens[1] __complete fish $tokens[2..-1] -- "$current" 2>/dev/null)
    for line in $found[2..-1]
        echo $line
    end
    if string match -q '*files*' -- $found[1]
        __fish_complete_path "$current"
    end
end
complete -c gpuyard -f -a '(__gpuyard_complete)'
