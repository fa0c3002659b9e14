# Kconfig, then the fragment: print the resulting .config.
FNR == NR && /^config / { option = $2; order[++count] = option }
FNR == NR && /depends on/ { needs[option] = $3 }
FNR != NR && match($0, /^CONFIG_[A-Z0-9_]+=/) {
	asked[substr($0, 8, RLENGTH - 8)] = substr($0, RLENGTH + 1)
}
END {
	for (i = 1; i <= count; i++) {
		option = order[i]
		value = asked[option]
		if (value == "" || value == "n" || (needs[option] && asked[needs[option]] != "y"))
			print "# CONFIG_" option " is not set"
		else
			print "CONFIG_" option "=" value
	}
}
