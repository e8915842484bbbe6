package release

import "weightfs/sources"

// Listing, Entry and Hidden are the source's, for packages that read releases but not sources.
type (
	Listing = sources.Listing
	Entry   = sources.Entry
	Hidden  = sources.Hidden
)
