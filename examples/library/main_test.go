package main

func Example() {
	main()
	// Output:
	// true 4
	// true 3
	// true 2
	// true 1
	// true 0
	// false 0
}
