package cache

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"weightfs/sources"
)

var _ sources.Keeper = (*Cache)(nil)

// LoadDocument is a small document that was stored under key, nil if it is not on disk, damaged, or longer than limit.
func (c *Cache) LoadDocument(key sources.ID, limit int64) []byte {
	if c.enter() != nil {
		return nil
	}
	defer c.leave()
	return c.disk.loadObject(key, limit, nil)
}

// StoreDocument keeps a small document that never changes, if there is a disk cache that may be written.
func (c *Cache) StoreDocument(key sources.ID, doc []byte) {
	if c.enter() != nil {
		return
	}
	defer c.leave()
	c.disk.storeObject(key, doc)
}

// LoadNote is the note that was stored last under key, nil if it is not on disk, damaged, or longer than limit.
func (c *Cache) LoadNote(key sources.ID, limit int64) []byte {
	if c.enter() != nil {
		return nil
	}
	defer c.leave()
	return c.disk.loadNote(key, limit)
}

// StoreNote keeps a small note, in place of an older one, if there is a disk cache that may be written. A note is never evicted.
func (c *Cache) StoreNote(key sources.ID, note []byte) {
	if c.enter() != nil {
		return
	}
	defer c.leave()
	c.disk.storeNote(key, note)
}

// A note is kept in <key>.note, whose file is
//
//	8 bytes "WFSNOTE1", the key, the note, the SHA-256 of all before
const noteMagic = "WFSNOTE1"

func encodeNote(key sources.ID, note []byte) []byte {
	p := slices.Concat([]byte(noteMagic), key[:], note)
	sum := sha256.Sum256(p)
	return append(p, sum[:]...)
}

// decodeNote reads what encodeNote wrote for the same key, or is nil: a file that is damaged is no note.
func decodeNote(key sources.ID, p []byte) []byte {
	end := len(p) - sha256.Size
	note, ok := bytes.CutPrefix(p[:max(end, 0)], append([]byte(noteMagic), key[:]...))
	if !ok || sha256.Sum256(p[:end]) != [sha256.Size]byte(p[end:]) {
		return nil
	}
	return note
}

func (d *disk) loadNote(key sources.ID, limit int64) []byte {
	if d == nil {
		return nil
	}
	for _, s := range []*store{d.own, d.shared} {
		if s == nil {
			continue
		}
		if p, err := s.readBeside(key, ".note", limit+int64(len(encodeNote(key, nil)))); err == nil {
			if note := decodeNote(key, p); note != nil {
				return note
			}
		}
	}
	return nil
}

func (d *disk) storeNote(key sources.ID, note []byte) {
	if d == nil || d.own == nil {
		return
	}
	if err := d.own.writeBeside(key, ".note", encodeNote(key, note)); err != nil {
		d.own.stop(err)
	}
}
