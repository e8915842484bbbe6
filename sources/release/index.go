package release

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
)

// maxIndex bounds an index file. That of Qwen3.8-Max FP8 has 28.7 MB.
const maxIndex = 256 << 20

// content is what an index or the headers say, in short: equal ones say the same, but for one in 2^64.
type content struct {
	seed    maphash.Seed // of the hashes, which nobody can know before
	tensors int
	sum     uint64 // of the hashes of tensor and shard, in any order
	size    int64  // total_size, -1 if it is not known
}

func (c *content) hash(name string) uint64 { return maphash.String(c.seed, name) }

// add takes in a tensor in a shard.
func (c *content) add(tensor, shard uint64) {
	c.tensors++
	c.sum += maphash.Comparable(c.seed, [2]uint64{tensor, shard})
}

// scanIndex reads a *.safetensors.index.json and calls each for every entry of weight_map; the arguments are valid only during the
// call. totalSize is metadata.total_size, -1 if that is not a plain whole number.
func scanIndex(text []byte, each func(tensor, shard []byte) error) (totalSize int64, err error) {
	s := &scanner{b: text}
	totalSize = -1
	seen := map[string]bool{}
	err = s.object(func(key []byte) error {
		k := string(key)
		if k != "weight_map" && k != "metadata" {
			return s.skip(1)
		}
		if seen[k] {
			return s.fail("%s occurs twice", k)
		}
		seen[k] = true
		if k == "metadata" {
			return s.totalSize(&totalSize)
		}
		return s.object(func(tensor []byte) error {
			shard, err := s.str()
			if err != nil {
				return fmt.Errorf("shard of tensor %s: %w", quoted(string(tensor)), err)
			}
			return each(tensor, shard)
		})
	})
	if err == nil {
		err = s.end()
	}
	if err == nil && !seen["weight_map"] {
		err = errors.New("there is no weight_map")
	}
	return totalSize, err
}

// totalSize takes the value of metadata.
func (s *scanner) totalSize(n *int64) error {
	if s.peek() != '{' {
		return s.skip(1)
	}
	return s.object(func(key []byte) error {
		isSize := string(key) == "total_size"
		text, err := s.raw(2)
		if err == nil && isSize {
			if v, err := strconv.ParseInt(string(text), 10, 64); err == nil && v >= 0 {
				*n = v
			}
		}
		return err
	})
}
