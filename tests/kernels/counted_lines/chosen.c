/* What the linker takes instead of the weak one. */
int chosen(int x)
{
	return x + 1;
}
