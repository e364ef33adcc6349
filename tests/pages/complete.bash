# What bash completes behind a line:  complete.bash SCRIPT LINE
# readline breaks the words at = and :, as well as at blanks.
source "$1"
COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDS=()
broken=${COMP_LINE//=/ = }
broken=${broken//:/ : }
read -ra COMP_WORDS <<<"$broken"
[[ $COMP_LINE != *[[:space:]=:] ]] || COMP_WORDS+=('')
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
[[ $(complete -p "${COMP_WORDS[0]}") == *" -F _dlaunch "* ]] || exit 1
_dlaunch "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
[ ${#COMPREPLY[@]} = 0 ] || printf '%s\n' "${COMPREPLY[@]}"
