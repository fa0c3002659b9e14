# Kconfig, then a fragment or an old .config: print the resulting .config.  With old=1 an option
# that is not in the second has its default, and a number always has.
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
			print "# CONFIG_" option " is not set"
		else
			print "CONFIG_" option "=" value
	}
}
