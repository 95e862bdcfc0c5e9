package limitpage

// Texts of both forms of the page.
const (
	title      = "Limits of this API"
	intro      = "Every limit that a request falls under counts it, and it passes if all of them have room. What a limit refuses has used up nothing. The limits that hold for you are in the response fields, and can be others than those here."
	furtherYes = "Some requests have further limits against guessing and misuse, which are not listed."
	casing     = "Names of fields are the same in upper and lower case."
)

// steps are what to do about a refusal.
var steps = []string{
	"Wait for as many seconds as Retry-After says, and by chance up to a tenth longer, so that not all clients come back at the same moment. Asked again before, the request is refused again.",
	"A refusal without Retry-After does not go away: change the request, or ask for a larger limit.",
	"Let few requests wait at a time, and give up after a few attempts.",
	"Better is not to be refused: read what is left, and spread that over the seconds that are told with it.",
}

// content is what the templates show.
type content struct {
	*Page
	Title, Intro, More, Casing string
	Steps                      []string
}

func (p *Page) content() content { return content{p, title, intro, furtherYes, casing, steps} }
