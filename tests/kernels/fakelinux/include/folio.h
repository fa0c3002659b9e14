int filemap_add(int index);
int slow(int index);
