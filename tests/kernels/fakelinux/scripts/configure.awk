# Kconfig, then a fragment or an old .config: write the resulting .config, if it is another one.  With
# old=1 an option that is not in the second has its default, and a number always has.  Then, as
# kbuild's syncconfig does, a header of the options that are set, and a file an option with the time
# at which it last changed.
function lines_of(file, of,    line, text) {
	while ((getline line < file) > 0) {
		of[line]
		text = text line "\n"
	}
	close(file)
	return text
}
function write(text, file) {
	printf "%s", text > file
	close(file)
}
function changed(line,    name) {
	if (match(line, /CONFIG_[A-Z0-9_]*/)) {
		name = substr(line, RSTART + 7, RLENGTH - 7)
		write("", "include/config/" name)
	}
}
FNR == NR && /^config / { option = $2; order[++count] = option }
FNR == NR && /depends on/ { needs[option] = $3 }
FNR == NR && /^\tint/ { number[option] = 1 }
FNR == NR && /default/ { usual[option] = $2 }
FNR != NR && match($0, /^CONFIG_[A-Z0-9_]+=/) {
	asked[substr($0, 8, RLENGTH - 8)] = substr($0, RLENGTH + 1)
}
FNR != NR && /^# CONFIG_.* is not set/ { asked[substr($2, 8)] = "n" }
END {
	for (i = 1; i <= count; i++) {
		option = order[i]
		value = asked[option]
		if ((old || number[option]) && value == "")
			value = usual[option]
		if (value == "" || value == "n" || (needs[option] && asked[needs[option]] != "y"))
			text = text "# CONFIG_" option " is not set\n"
		else
			text = text "CONFIG_" option "=" value "\n"
		if (value == "y")
			header = header "#define CONFIG_" option " 1\n"
	}
	text = text versions "\n"
	if (text != lines_of(".config"))
		write(text, ".config")
	write(header, "include/generated/autoconf.h")
	lines_of("include/config/auto.conf", before)
	lines_of(".config", after)
	for (line in before)
		if (!(line in after))
			changed(line)
	for (line in after)
		if (!(line in before))
			changed(line)
	write(text, "include/config/auto.conf")
}
