# What kbuild's syncconfig does: a header of the options that are set, and a file a option
# with the time at which it last changed.
mkdir -p include/config include/generated
sed -n 's/^\(CONFIG_[A-Z0-9_]*\)=y$/#define \1 1/p' .config > include/generated/autoconf.h
touch include/config/auto.conf
{ diff include/config/auto.conf .config || true; } |
	grep -o 'CONFIG_[A-Z0-9_]*' | sort -u | sed 's,CONFIG_,include/config/,' | xargs -r touch
cp .config include/config/auto.conf
