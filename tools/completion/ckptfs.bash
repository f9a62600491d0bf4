# bash completion for ckptfs: the program itself says which verbs and options there are.

_ckptfs() {
	local program=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb words
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" help --words 2>/dev/null) --help --version" -- "$word")
		return
	fi
	verb=${COMP_WORDS[1]}
	if [[ $verb == help ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" help --words 2>/dev/null)" -- "$word")
		return
	fi
	words=$("$program" help --words "$verb" 2>/dev/null)
	if [[ $before == -o || $before == --options ]]; then
		# The last of the mount options, which have commas between them.
		local done=
		[[ $word != *,* ]] || done=${word%,*},
		mapfile -t COMPREPLY < <(compgen -P "$done" -W "$(grep -v '^-' <<<"$words")" -- "${word##*,}")
		compopt -o nospace
	elif [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(grep '^-' <<<"$words")" -- "$word")
		[[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace
	elif [[ $verb == mount || $verb == umount || $verb == init || $verb == copy ]]; then
		mapfile -t COMPREPLY < <(compgen -d -- "$word")
		compopt -o filenames
	fi
}

# Where the function offers nothing: files and directories.
complete -o default -F _ckptfs ckptfs
