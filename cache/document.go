package cache

import "weightfs/sources"

var _ sources.Keeper = (*Cache)(nil)

// LoadDocument is a small document that was stored under key, nil if it is not on disk, damaged, or longer than limit.
func (c *Cache) LoadDocument(key sources.ID, limit int64) []byte {
	if c.enter() != nil {
		return nil
	}
	defer c.leave()
	return c.disk.loadObject(key, limit)
}

// StoreDocument keeps a small document that never changes, if there is a disk cache that may be written.
func (c *Cache) StoreDocument(key sources.ID, doc []byte) {
	if c.enter() != nil {
		return
	}
	defer c.leave()
	c.disk.storeObject(key, doc)
}
